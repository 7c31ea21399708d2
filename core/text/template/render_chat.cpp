// From a chat request to template variables.
#include <algorithm>
#include <array>

#include "text/template/chat_template.h"

namespace turbo::text {

namespace {

using Json = nlohmann::ordered_json;

// Names that chat_template_kwargs may not set: what the conversation itself provides, the engine's functions, and the
// switches that other servers take in the same place for tokenizing rather than for the template.
constexpr std::string_view kReserved[] = {
    "messages", "tools", "add_generation_prompt", "bos_token", "eos_token", "raise_exception", "strftime_now", "namespace",
    "range", "dict", "cycler", "joiner", "loop", "tokenize", "return_tensors", "return_dict", "padding", "truncation",
    "max_length", "add_special_tokens", "chat_template", "continue_final_message", "conversation", "tokenizer_kwargs",
};

// Copying and freeing JSON recurses, so what nests deeper than any template may see is refused before it is copied.
bool nests_within(const Json& json, size_t levels) {
  if (!json.is_structured()) return true;
  if (levels == 0) return false;
  return std::all_of(json.begin(), json.end(), [&](const Json& item) { return nests_within(item, levels - 1); });
}

bool is_text_part(const Json& part) {
  if (part.is_string()) return true;
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) return false;
  const auto& type = part["type"].get_ref<const std::string&>();
  const char* field = type == "refusal" ? "refusal" : "text";
  return (type == "text" || type == "input_text" || type == "output_text" || type == "refusal") && part.contains(field) &&
         part[field].is_string();
}

const std::string& part_text(const Json& part) {
  if (part.is_string()) return part.get_ref<const std::string&>();
  return part[part.contains("text") && part["text"].is_string() ? "text" : "refusal"].get_ref<const std::string&>();
}

Result<Json> shaped_content(const Json& content, ContentShape shape, size_t index) {
  if (content.is_string() && shape == ContentShape::parts_only) {
    return Json(Json::array({{{"type", "text"}, {"text", content}}}));
  }
  if (!content.is_array() || shape != ContentShape::text_only) return content;
  std::string joined;
  bool first = true;
  for (const Json& part : content) {
    if (!is_text_part(part)) {
      return Status(Code::unsupported, fmt::format("messages[{}].content: this model's chat template takes text parts only", index));
    }
    if (!first) joined += '\n';
    first = false;
    joined += part_text(part);
  }
  return Json(std::move(joined));
}

// OpenAI clients send arguments as JSON text; most templates print an object as JSON and would quote text twice.
void shape_arguments(Json& message) {
  auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    Json* holder = &call;
    if (call.is_object() && call.contains("function") && call["function"].is_object()) holder = &call["function"];
    if (!holder->is_object() || !holder->contains("arguments")) continue;
    Json& arguments = (*holder)["arguments"];
    if (!arguments.is_string()) continue;
    const auto& text = arguments.get_ref<const std::string&>();
    // The parser recurses, so text that only nests is left as it is.
    size_t depth = 0, deepest = 0;
    for (char c : text) {
      if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
      if ((c == '}' || c == ']') && depth > 0) --depth;
    }
    if (deepest > 64) continue;
    Json parsed = Json::parse(text, nullptr, false);
    if (parsed.is_object()) arguments = std::move(parsed);
  }
}

void stringify_arguments(Json& message) {
  auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (Json& call : *calls) {
    Json* holder = &call;
    if (call.is_object() && call.contains("function") && call["function"].is_object()) holder = &call["function"];
    if (!holder->is_object() || !holder->contains("arguments")) continue;
    Json& arguments = (*holder)["arguments"];
    if (arguments.is_object()) arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

Result<Json> shaped_message(const ChatTemplate& chat_template, const Json& message, size_t index) {
  if (!message.is_object()) return error(Code::invalid_argument, "messages[{}] must be an object", index);
  Json out = message;
  if (auto content = out.find("content"); content != out.end()) {
    TURBO_ASSIGN(*content, shaped_content(*content, chat_template.content_shape(), index));
  }
  chat_template.wants_argument_text() ? stringify_arguments(out) : shape_arguments(out);
  return out;
}

}  // namespace

bool is_reserved_variable(std::string_view name) {
  return std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

Result<std::string> render_chat(const ChatTemplate& chat_template, const ChatInput& input) {
  if (!input.messages.is_array()) return Status(Code::invalid_argument, "messages must be an array");
  if (!input.tools.is_null() && !input.tools.is_array()) return Status(Code::invalid_argument, "tools must be an array");
  if (!input.extra.is_null() && !input.extra.is_object()) {
    return Status(Code::invalid_argument, "chat_template_kwargs must be an object");
  }
  for (const Json* given : {&input.messages, &input.tools, &input.extra}) {
    if (!nests_within(*given, chat_template.limits().max_depth)) {
      return error(Code::resource_exhausted, "chat template: input nested deeper than {} levels", chat_template.limits().max_depth);
    }
  }
  try {
    Json messages = Json::array();
    for (size_t i = 0; i < input.messages.size(); ++i) {
      TURBO_ASSIGN(Json message, shaped_message(chat_template, input.messages[i], i));
      messages.push_back(std::move(message));
    }
    Json variables = Json::object();
    variables["documents"] = nullptr;
    if (input.extra.is_object()) {
      for (auto& [name, value] : input.extra.items()) {
        if (is_reserved_variable(name)) {
          return error(Code::invalid_argument, "chat_template_kwargs: '{}' cannot be set", name);
        }
        variables[name] = value;
      }
    }
    variables["messages"] = std::move(messages);
    variables["tools"] = input.tools.is_array() && input.tools.empty() ? Json(nullptr) : input.tools;
    variables["add_generation_prompt"] = input.add_generation_prompt;
    variables["bos_token"] = input.bos_token;
    variables["eos_token"] = input.eos_token;
    return chat_template.render(variables, input.options);
  } catch (const std::exception& e) {
    return Status(Code::internal, std::string("chat template: ") + e.what());
  }
}

}  // namespace turbo::text
