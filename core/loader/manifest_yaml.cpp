#include "loader/manifest_yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "loader/text.h"

namespace turbo::loader {
namespace {

constexpr size_t max_depth = 8;
constexpr size_t max_nodes = 4096;

struct Refusal {
  int line;
  std::string why;
};

// Throws Refusal from inside the parser, which ends its recursion at once.
class TreeBuilder : public YAML::EventHandler {
 public:
  YamlValue take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse(mark, "expected a value but found an alias"); }
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(node(mark, YamlValue::Kind::null, "", anchor));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlValue scalar = node(mark, YamlValue::Kind::scalar, tag, anchor);
    scalar.quoted = tag == "!";
    scalar.text = value;
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(node(mark, YamlValue::Kind::list, tag, anchor), mark);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(node(mark, YamlValue::Kind::map, tag, anchor), mark);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Level {
    YamlValue value;
    bool has_key = false;
    std::string key;
  };

  [[noreturn]] static void refuse(const YAML::Mark& mark, std::string why) {
    throw Refusal{mark.line + 1, std::move(why)};
  }

  YamlValue node(const YAML::Mark& mark, YamlValue::Kind kind, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor) refuse(mark, "expected a value but found an anchor");
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "expected a value but found a tag");
    if (++n_nodes_ > max_nodes) refuse(mark, fmt::format("expected at most {} values", max_nodes));
    YamlValue value;
    value.kind = kind;
    value.line = mark.line + 1;
    return value;
  }
  void open(YamlValue value, const YAML::Mark& mark) {
    if (levels_.size() >= max_depth) refuse(mark, fmt::format("expected at most {} levels of nesting", max_depth));
    if (!levels_.empty() && levels_.back().value.kind == YamlValue::Kind::map && !levels_.back().has_key)
      refuse(mark, "expected a key but found a list or map");
    levels_.push_back({std::move(value), false, {}});
  }
  void close() {
    YamlValue done = std::move(levels_.back().value);
    levels_.pop_back();
    add(std::move(done));
  }
  void add(YamlValue value) {
    if (levels_.empty()) {
      root_ = std::move(value);
      return;
    }
    Level& level = levels_.back();
    if (level.value.kind == YamlValue::Kind::list) {
      level.value.items.push_back(std::move(value));
    } else if (!level.has_key) {
      if (value.kind != YamlValue::Kind::scalar) throw Refusal{value.line, "expected a key"};
      for (const auto& [key, unused] : level.value.entries)
        if (key == value.text) throw Refusal{value.line, fmt::format("key '{}' appears twice", clean_text(key, 64))};
      level.key = std::move(value.text);
      level.has_key = true;
    } else {
      level.value.entries.push_back({std::move(level.key), std::move(value)});
      level.has_key = false;
    }
  }

  YamlValue root_;
  std::vector<Level> levels_;
  size_t n_nodes_ = 0;
};

}  // namespace

Result<YamlValue> parse_bounded_yaml(std::string_view text, const std::string& source) {
  const auto refused = [&](int line, const std::string& why) {
    return error(Code::invalid_argument, "{}:{}: {}", source, line, why);
  };
  int line = 1;
  for (char c : text) {
    if (c == '\n') ++line;
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\r') || c == 0x7F)
      return refused(line,
                     fmt::format("expected text but found the control byte 0x{:02x}", static_cast<unsigned char>(c)));
  }
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    TreeBuilder tree;
    if (!parser.HandleNextDocument(tree)) return refused(1, "expected a manifest but the file is empty");
    YamlValue root = tree.take();
    TreeBuilder second;
    if (parser.HandleNextDocument(second)) return refused(line, "expected one document but found a second");
    if (root.kind != YamlValue::Kind::map) return refused(std::max(root.line, 1), "expected keys and values");
    return root;
  } catch (const Refusal& refusal) {
    return refused(refusal.line, refusal.why);
  } catch (const YAML::Exception& exception) {
    return refused(std::max(exception.mark.line + 1, 1), clean_text(exception.msg, 200));
  } catch (const std::exception& exception) {
    return refused(1, clean_text(exception.what(), 200));
  }
}

}  // namespace turbo::loader
