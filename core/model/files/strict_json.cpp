#include "model/files/strict_json.h"

#include <vector>

#include "model/files/limits.h"
#include "model/files/utf8.h"

namespace turbo::model {
namespace {

using nlohmann::json;

/// Builds a document from parser events, and stops at the first thing that is not allowed.
class Builder final : public nlohmann::json_sax<json> {
 public:
  json document;
  std::string problem;
  Code code = Code::corrupt_input;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(int64_t value) override { return add(value); }
  bool number_unsigned(uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) override { return refuse("binary data"); }
  bool start_object(size_t) override { return open(json::object()); }
  bool start_array(size_t) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& text) override {
    json& object = *open_.back();
    if (object.contains(text)) return refuse(fmt::format("key '{}' is there twice", printable(text)));
    key_ = std::move(text);
    return true;
  }

  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    if (problem.empty()) problem = fmt::format("invalid JSON at byte {}", at > 0 ? at - 1 : 0);
    return false;
  }

 private:
  json* place(json value) {
    if (open_.empty()) return &(document = std::move(value));
    json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[key_] = std::move(value));
  }
  bool count() {
    if (++values_ <= limits::json_values) return true;
    code = Code::resource_exhausted;
    return refuse(fmt::format("expected at most {} values", limits::json_values));
  }
  bool add(json value) {
    if (!count()) return false;
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    if (!count()) return false;
    if (open_.size() >= limits::json_depth)
      return refuse(fmt::format("expected at most {} levels of nesting", limits::json_depth));
    // Pointers to open parents stay valid: a parent grows only after its open child has been closed.
    open_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }
  bool refuse(std::string why) {
    problem = std::move(why);
    return false;
  }

  std::vector<json*> open_;
  std::string key_;
  uint64_t values_ = 0;
};

}  // namespace

Result<json> parse_strict_json(std::string_view text, const std::string& name) {
  const auto refuse = [&](Code code, std::string_view why) {
    return error(code, "{}: {}", name, why).with_hint("the file is damaged or was edited by hand; download it again");
  };
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    return refuse(Code::corrupt_input, fmt::format("invalid JSON at byte {}: a NUL byte", nul));
  }
  if (!is_utf8(text)) return refuse(Code::corrupt_input, "it is not UTF-8 text");
  Builder builder;
  if (!json::sax_parse(text, &builder)) return refuse(builder.code, builder.problem);
  if (!builder.document.is_object()) return refuse(Code::corrupt_input, "expected a JSON object");
  return std::move(builder.document);
}

}  // namespace turbo::model
