#include "profile/yaml_tree.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "profile/printable.h"

namespace turbo::profile {
namespace {

constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// Carries a refusal out of the parser; never leaves this file.
struct Refusal {
  Status status;
};

// yaml-cpp counts columns in bytes; people count characters.
class Positions {
 public:
  explicit Positions(std::string_view text) : text_(text) {
    line_starts_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') line_starts_.push_back(i + 1);
  }

  Position of(const YAML::Mark& mark) const {
    if (mark.line < 0 || mark.column < 0) return {1, 1};
    const size_t line = std::min<size_t>(mark.line, line_starts_.size() - 1);
    const std::string_view before = text_.substr(line_starts_[line], mark.column);
    const auto continuation = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
    const auto characters = before.size() - std::count_if(before.begin(), before.end(), continuation);
    return {static_cast<int>(line) + 1, static_cast<int>(characters) + 1};
  }

  /// The text from a mark on.
  std::string_view from(const YAML::Mark& mark) const {
    if (mark.line < 0 || mark.column < 0 || static_cast<size_t>(mark.line) >= line_starts_.size()) return {};
    return text_.substr(std::min(line_starts_[mark.line] + mark.column, text_.size()));
  }

 private:
  std::string_view text_;
  std::vector<size_t> line_starts_;
};

// Builds the tree from parser events. The depth limit is applied when a container starts, which is before the parser
// recurses into it, so the parser's stack is bounded whatever the prescan thought of the text.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const Positions& positions, const std::string& source) : positions_(positions), source_(source) {}

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) refuse(mark, Code::invalid_argument, "expected one document but found a second");
  }
  void OnDocumentEnd() override {}
  void OnAnchor(const YAML::Mark& mark, const std::string&) override {
    refuse(mark, Code::unsupported, "expected a value but found an anchor ('&')");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, Code::unsupported, "expected a value but found an alias ('*')");
  }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    YamlNode node;
    begin(node, mark, "?", anchor);
    finish(std::move(node), mark);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node;
    begin(node, mark, tag, anchor);
    node.kind = YamlNode::Kind::scalar;
    node.quoted = tag == "!";
    node.text = value;
    // A plain value that goes on in the next line is nearly always a line that is indented by mistake.
    if (!node.quoted && !positions_.from(mark).starts_with(value))
      refuse(mark, Code::invalid_argument, "expected the value to end with its line but it goes on in the next",
             "check the indentation of the next line, or quote the value");
    const auto control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; };
    if (std::any_of(value.begin(), value.end(), control))
      refuse(mark, Code::invalid_argument, "expected one line of text but found a control character in the value");
    finish(std::move(node), mark);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::list, mark, tag, anchor);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(YamlNode::Kind::map, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

  YamlNode take_root() { return std::move(root_); }

 private:
  struct Frame {
    YamlNode node;
    YAML::Mark mark;
    bool has_key = false;
    std::string key;
    Position key_at;
    std::unordered_set<std::string> keys;
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, Code code, std::string_view why, std::string hint = {}) const {
    const Position at = positions_.of(mark);
    throw Refusal{Status(code, fmt::format("{}:{}:{}: {}", source_, at.line, at.column, why), std::move(hint))};
  }

  void begin(YamlNode& node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) refuse(mark, Code::unsupported, "expected a value but found an anchor ('&')");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, Code::unsupported, "expected a value but found a tag");
    if (++nodes_ > max_yaml_nodes)
      refuse(mark, Code::resource_exhausted, fmt::format("expected at most {} values", max_yaml_nodes));
    node.at = positions_.of(mark);
  }

  void open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (stack_.size() >= max_yaml_depth)
      refuse(mark, Code::resource_exhausted, fmt::format("expected at most {} levels of nesting", max_yaml_depth));
    if (!stack_.empty() && stack_.back().node.kind == YamlNode::Kind::map && !stack_.back().has_key)
      refuse(mark, Code::invalid_argument, "expected a name but found a list or map as a key");
    Frame frame;
    begin(frame.node, mark, tag, anchor);
    frame.node.kind = kind;
    frame.mark = mark;
    stack_.push_back(std::move(frame));
  }

  void close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    finish(std::move(frame.node), frame.mark);
  }

  // Hands a finished value to its parent.
  void finish(YamlNode node, const YAML::Mark& mark) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& parent = stack_.back();
    if (parent.node.kind == YamlNode::Kind::list) {
      parent.node.items.push_back(std::move(node));
      return;
    }
    if (parent.has_key) {
      parent.node.entries.push_back({std::move(parent.key), parent.key_at, std::move(node)});
      parent.has_key = false;
      return;
    }
    if (node.kind != YamlNode::Kind::scalar || node.text.empty())
      refuse(mark, Code::invalid_argument, "expected a name before ':'");
    if (node.text == "<<" && !node.quoted) refuse(mark, Code::unsupported, "merge keys ('<<') are not accepted");
    if (!parent.keys.insert(node.text).second)
      refuse(mark, Code::invalid_argument, fmt::format("{}: the key appears twice here", printable(node.text)),
             "keep one of the two");
    parent.has_key = true;
    parent.key = std::move(node.text);
    parent.key_at = node.at;
  }

  const Positions& positions_;
  const std::string& source_;
  int documents_ = 0;
  size_t nodes_ = 0;
  std::vector<Frame> stack_;
  YamlNode root_;
};

Status syntax_error(const YAML::Exception& failure, const Positions& positions, const std::string& source) {
  const Position at = positions.of(failure.mark);
  return Status(Code::invalid_argument,
                fmt::format("{}:{}:{}: not valid YAML: {}", source, at.line, at.column, failure.msg),
                "check indentation, colons and quotes near there");
}

}  // namespace

Result<YamlNode> parse_yaml(std::string_view text, const std::string& source) {
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  TURBO_RETURN_IF_ERROR(prescan_yaml(text, source));
  const Positions positions(text);
  TreeBuilder builder(positions, source);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const Refusal& refusal) {
    return refusal.status;
  } catch (const YAML::Exception& failure) {
    return syntax_error(failure, positions, source);
  } catch (const std::exception& failure) {
    return error(Code::resource_exhausted, "{}: parsing failed: {}", source, failure.what());
  }
  YamlNode root = builder.take_root();
  if (root.kind == YamlNode::Kind::null)
    return Status(Code::invalid_argument, source + ":1:1: expected settings but the profile is empty",
                  "write at least `schema: 1`, or start from configs/default.yaml");
  if (root.kind != YamlNode::Kind::map)
    return Status(Code::invalid_argument,
                  fmt::format("{}:{}:{}: expected `key: value` lines but found {}", source, root.at.line,
                              root.at.column, root.kind == YamlNode::Kind::list ? "a list" : "plain text"),
                  "a profile is a map, for example `model: { path: model.gguf }`");
  return root;
}

}  // namespace turbo::profile
