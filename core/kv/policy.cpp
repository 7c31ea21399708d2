#include "kv/policy.h"

#include <charconv>
#include <functional>

namespace turbo::kv {
namespace {

Status refuse(const char* key, const char* expected, const std::string& found) {
  return error(Code::invalid_argument, "kv.options.{}: expected {} but found '{}'", key, expected, found.substr(0, 64))
      .with_hint(fmt::format("correct kv.options.{}, or leave it out", key));
}

Status read_switch(const char* key, const std::string& text, bool& value) {
  if (text == "on" || text == "true" || text == "1") value = true;
  else if (text == "off" || text == "false" || text == "0") value = false;
  else return refuse(key, "on or off", text);
  return Status::ok();
}

// A switch, or the path of a file: what holds a slash or a dot.
Status read_center(const std::string& text, CodecPolicy& policy) {
  if (text.find_first_of("/.") == std::string::npos) {
    if (read_switch("center", text, policy.center).is_ok()) return Status::ok();
    return refuse("center", "on, off or the path of a file (with a slash or a dot)", text);
  }
  policy.center_file = text;
  return Status::ok();
}

Status read_boundary(const std::string& text, std::optional<uint32_t>& value) {
  value.reset();
  if (text == "auto") return Status::ok();
  uint32_t n = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (problem != std::errc{} || end != text.data() + text.size() || n > 4096) return refuse("boundary", "auto or a number of layers up to 4096", text);
  value = n;
  return Status::ok();
}

Status read_name(const char* key, const std::string& text, std::string& value) {
  if (text.empty()) return refuse(key, "the name of a KV codec", text);
  value = text;
  return Status::ok();
}

// A 4-bit codec of the same family.
std::string wider(const std::string& codec) {
  if (codec == "tq2" || codec == "tq3") return "tq4";
  if (codec.starts_with("rq3_")) return "rq4_" + codec.substr(4);
  return "q8";
}

}  // namespace

Result<CodecPolicy> take_policy(std::map<std::string, std::string>& options, const std::string& v) {
  CodecPolicy policy;
  policy.promote_v = wider(v);
  const std::map<std::string, std::function<Status(const std::string&)>> keys{
      {"center", [&](const std::string& text) { return read_center(text, policy); }},
      {"self_check", [&](const std::string& text) { return read_switch("self_check", text, policy.self_check); }},
      {"boundary", [&](const std::string& text) { return read_boundary(text, policy.boundary); }},
      {"promote_k", [&](const std::string& text) { return policy.names_promotions = true, read_name("promote_k", text, policy.promote_k); }},
      {"promote_v", [&](const std::string& text) { return policy.names_promotions = true, read_name("promote_v", text, policy.promote_v); }},
      {"prefill",
       [&](const std::string& text) {
         policy.exact_prefill = text == "exact";
         return policy.exact_prefill || text == "consistent" ? Status::ok() : refuse("prefill", "consistent or exact", text);
       }},
  };
  for (const auto& [key, read] : keys)
    if (const auto given = options.find(key); given != options.end()) {
      TURBO_RETURN_IF_ERROR(read(given->second));
      options.erase(given);
    }
  return policy;
}

const std::vector<std::string>& policy_keys() {
  static const std::vector<std::string> keys{"boundary", "center", "prefill", "promote_k", "promote_v", "self_check"};
  return keys;
}

Status refuse_policy_keys(const std::map<std::string, std::string>& options, const std::string& name) {
  for (const std::string& key : policy_keys())
    if (options.contains(key))
      return error(Code::invalid_argument, "{}: '{}' is an option of the whole cache, not of a codec", name, key)
          .with_hint(fmt::format("write kv.options.{}", key));
  return Status::ok();
}

}  // namespace turbo::kv
