// Any bytes as a chat template, parsed and rendered over a small conversation under tight limits.
#include <cstddef>
#include <cstdint>
#include <string>

#include "text/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace turbo::text;
  TemplateLimits limits;
  limits.max_source_bytes = 1 << 16;
  limits.max_steps = 20'000;
  limits.max_output_bytes = 1 << 20;
  limits.max_value_bytes = 4 << 20;
  auto parsed = ChatTemplate::parse(std::string(reinterpret_cast<const char*>(data), size), limits);
  if (!parsed) return 0;
  static const ChatInput input = [] {
    ChatInput in;
    in.messages = nlohmann::ordered_json::parse(R"([
      {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Grüße 🎉"},
      {"role": "assistant", "content": null, "tool_calls": [{"id": "abc123def", "type": "function",
        "function": {"name": "f", "arguments": "{\"x\": [1, 2.5, null]}"}}]},
      {"role": "tool", "content": [{"type": "text", "text": "ok"}]}])");
    in.tools = nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
    in.bos_token = "<s>";
    in.eos_token = "</s>";
    in.options.now_unix_s = 0;
    return in;
  }();
  (void)render_chat(*parsed, input);
  return 0;
}
