#include "server/chat.h"

#include <algorithm>
#include <set>

#include "engine/chat_prompt.h"
#include "server/chat_format.h"

namespace turbo::server {
namespace {

constexpr size_t kMaxParts = 4096, kMaxToolCalls = 128;
constexpr std::string_view kThink = "<think>";

bool is_tool_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](unsigned char c) {
           return std::isalnum(c) || c == '_' || c == '-';
         });
}

// Text of a content field: a string or text parts. Other parts belong to models that see or hear.
std::optional<ApiError> check_content(const Json& content, const std::string& param) {
  if (content.is_string()) return std::nullopt;
  if (!content.is_array()) return ApiError::invalid_type(param, "a string or an array of parts");
  if (content.size() > kMaxParts) return ApiError::out_of_range(param, "an array of at most 4096 parts");
  for (size_t i = 0; i < content.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", param, i);
    if (!content[i].is_object()) return ApiError::invalid_type(at, "an object");
    const Json* type = find_field(content[i], "type");
    if (!type) return ApiError::missing(at + ".type");
    if (!type->is_string()) return ApiError::invalid_type(at + ".type", "a string");
    if (*type != "text" && *type != "refusal")
      return ApiError::unsupported_value(at + ".type", "the model takes only text and refusal parts");
    const std::string key = type->get<std::string>();
    const Json* text = find_field(content[i], key.c_str());
    if (!text) return ApiError::missing(at + "." + key);
    if (!text->is_string()) return ApiError::invalid_type(at + "." + key, "a string");
  }
  return std::nullopt;
}

Json plain_content(const Json& content) {
  if (!content.is_array()) return content;
  Json parts = Json::array();
  for (const Json& part : content)
    parts.push_back(Json{{"type", "text"}, {"text", part[part["type"].get<std::string>()]}});
  return parts;
}

std::string joined_text(const Json& content) {
  if (content.is_string()) return content.get<std::string>();
  std::string text;
  for (const Json& part : content) text += (text.empty() ? "" : "\n") + part["text"].get<std::string>();
  return text;
}

std::optional<ApiError> check_tool_calls(const Json& calls, const std::string& param, std::set<std::string>& ids) {
  if (!calls.is_array()) return ApiError::invalid_type(param, "an array");
  if (calls.size() > kMaxToolCalls) return ApiError::out_of_range(param, "an array of at most 128 calls");
  for (size_t i = 0; i < calls.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", param, i);
    if (!calls[i].is_object()) return ApiError::invalid_type(at, "an object");
    static const std::vector<Field> table{{.name = "id", .types = kString, .required = true},
                                          {.name = "type", .types = kString, .choices = {"function"}},
                                          {.name = "function", .types = kObject, .required = true}};
    if (auto error = check_fields(calls[i], table, at + ".")) return error;
    static const std::vector<Field> function{{.name = "name", .types = kString, .min = 1, .max = 256, .required = true},
                                             {.name = "arguments", .types = kString | kObject, .required = true}};
    if (auto error = check_fields(calls[i]["function"], function, at + ".function.")) return error;
    ids.insert(calls[i]["id"].get<std::string>());
  }
  return std::nullopt;
}

// One message, checked and reduced to what templates know.
Checked<Json> read_message(const Json& message, const std::string& at, std::set<std::string>& call_ids) {
  if (!message.is_object()) return ApiError::invalid_type(at, "an object");
  static const std::vector<Field> table{
      {.name = "role", .types = kString, .choices = {"system", "developer", "user", "assistant", "tool", "function"}, .required = true},
      {"name", kString, 0, 256}, {"tool_call_id", kString, 0, 256}, {"reasoning_content", kString}, {"refusal", kString}};
  if (auto error = check_fields(message, table, at + ".")) return *error;
  std::string role = message["role"].get<std::string>();
  if (role == "developer") role = "system";
  const bool named_function = role == "function";
  if (named_function) role = "tool";

  Json out{{"role", role}};
  const Json* content = find_field(message, "content");
  const Json* calls = role == "assistant" ? find_field(message, "tool_calls") : nullptr;
  if (content) {
    if (auto error = check_content(*content, at + ".content")) return *error;
    out["content"] = plain_content(*content);
  } else if (role == "assistant" && (calls || find_field(message, "refusal"))) {
    out["content"] = get_string(message, "refusal");
  } else {
    return ApiError::missing(at + ".content");
  }
  if (const Json* name = find_field(message, "name")) out["name"] = *name;
  if (const Json* reasoning = find_field(message, "reasoning_content"); reasoning && role == "assistant") out["reasoning_content"] = *reasoning;
  if (calls) {
    if (auto error = check_tool_calls(*calls, at + ".tool_calls", call_ids)) return *error;
    if (!calls->empty()) out["tool_calls"] = *calls;
  }
  if (role == "tool" && !named_function) {
    const Json* id = find_field(message, "tool_call_id");
    if (!id) return ApiError::missing(at + ".tool_call_id");
    if (!call_ids.contains(id->get<std::string>()))
      return ApiError::unsupported_value(at + ".tool_call_id", "no earlier assistant message has a tool call of this id");
    out["tool_call_id"] = *id;
  }
  return out;
}

struct Tools {
  Json list;  // null when the template gets none
  std::vector<std::string> names;
};

Checked<Tools> read_tools(const Json& body) {
  Tools tools;
  const Json* list = find_field(body, "tools");
  for (size_t i = 0; list && i < list->size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    const Json& tool = (*list)[i];
    if (!tool.is_object()) return ApiError::invalid_type(at, "an object");
    static const std::vector<Field> table{{.name = "type", .types = kString, .choices = {"function"}, .required = true},
                                          {.name = "function", .types = kObject, .required = true}};
    if (auto error = check_fields(tool, table, at + ".")) return *error;
    static const std::vector<Field> function{{.name = "name", .types = kString, .required = true},
                                             {"description", kString}, {"parameters", kObject}, {"strict", kBoolean}};
    if (auto error = check_fields(tool["function"], function, at + ".function.")) return *error;
    const std::string name = tool["function"]["name"].get<std::string>();
    if (!is_tool_name(name)) return ApiError::out_of_range(at + ".function.name", "a name of 1 to 64 characters of A-Z a-z 0-9 _ -");
    tools.names.push_back(name);
  }
  if (list && !list->empty()) tools.list = *list;

  const Json* choice = find_field(body, "tool_choice");
  if (!choice) return tools;
  if (choice->is_string()) {
    if (*choice != "none" && *choice != "auto" && *choice != "required")
      return ApiError::unsupported_value("tool_choice", "must be none, auto, required or a function");
    if (*choice == "none") return Tools{};
    if (*choice == "required" && tools.names.empty()) return ApiError::unsupported_value("tool_choice", "there are no tools to choose from");
    if (*choice == "required") return ApiError::not_supported("tool_choice 'required'", "tool_choice");
    return tools;
  }
  static const std::vector<Field> named{{.name = "type", .types = kString, .choices = {"function"}, .required = true},
                                        {.name = "function", .types = kObject, .required = true}};
  if (auto error = check_fields(*choice, named, "tool_choice.")) return *error;
  static const std::vector<Field> function{{.name = "name", .types = kString, .required = true}};
  if (auto error = check_fields((*choice)["function"], function, "tool_choice.function.")) return *error;
  if (std::find(tools.names.begin(), tools.names.end(), (*choice)["function"]["name"]) == tools.names.end())
    return ApiError::unsupported_value("tool_choice.function.name", "no tool has this name");
  return ApiError::not_supported("a named tool_choice", "tool_choice");
}

Checked<Json> read_template_arguments(const Json& body, const text::ChatTemplate& chat_template) {
  Json extra = Json::object();
  if (const Json* given = find_field(body, "chat_template_kwargs"))
    for (const auto& [name, value] : given->items()) {
      const std::string param = "chat_template_kwargs." + name.substr(0, 64);
      if (value.is_structured()) return ApiError::invalid_type(param, "a string, a number, true or false");
      if (text::is_reserved_variable(name)) return ApiError::unsupported_value(param, "this name is not the caller's to set");
      // Only what the template reads gets through; other names are for other models and mean nothing here.
      if (!value.is_null() && chat_template.mentions(name)) extra[name] = value;
    }
  if (const Json* effort = find_field(body, "reasoning_effort")) {
    extra["reasoning_effort"] = *effort;
    if (*effort == "none" && chat_template.mentions("enable_thinking") && !extra.contains("enable_thinking")) extra["enable_thinking"] = false;
  }
  return extra;
}

bool ends_with_think(std::string_view text) {
  const size_t end = text.find_last_not_of(" \n\t\r");
  return end != text.npos && end + 1 >= kThink.size() && text.substr(end + 1 - kThink.size(), kThink.size()) == kThink;
}

std::optional<ApiError> check_modalities(const Json& body) {
  const Json* modalities = find_field(body, "modalities");
  for (size_t i = 0; modalities && i < modalities->size(); ++i) {
    const std::string param = fmt::format("modalities[{}]", i);
    if (!(*modalities)[i].is_string()) return ApiError::invalid_type(param, "a string");
    if ((*modalities)[i] != "text") return ApiError::unsupported_value(param, "the model answers with text only");
  }
  return std::nullopt;
}

}  // namespace

Checked<ChatPromptText> render_conversation(const Json& body, const Backend& backend, size_t max_tokens, const std::atomic<bool>* stop) {
  const auto tokenizer = backend.tokenizer();
  if (!tokenizer) return ApiError::not_supported("chat: " + tokenizer.status().message());
  const auto chat_template = backend.chat_template();
  if (!chat_template) return ApiError::not_supported("chat with this model (it has no usable chat template)");

  text::ChatInput input;
  input.messages = Json::array();
  std::set<std::string> call_ids;
  const Json& messages = *find_field(body, "messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    TURBO_CHECKED(Json message, read_message(messages[i], fmt::format("messages[{}]", i), call_ids));
    input.messages.push_back(std::move(message));
  }
  TURBO_CHECKED(Tools tools, read_tools(body));
  TURBO_CHECKED(input.extra, read_template_arguments(body, **chat_template));
  input.tools = tools.list;

  // A conversation that ends with the assistant is continued: its words follow the prompt that asks for an answer.
  std::optional<std::string> continued;
  if (input.messages.back()["role"] == "assistant") {
    const size_t last = input.messages.size() - 1;
    if (last == 0) return ApiError::unsupported_value("messages", "an assistant message alone cannot be continued");
    if (input.messages.back().contains("tool_calls"))
      return ApiError::unsupported_value(fmt::format("messages[{}]", last), "an assistant message with tool calls cannot be continued");
    continued = joined_text(input.messages.back()["content"]);
    input.messages.erase(last);
  }

  Result<engine::ChatPrompt> prompt = engine::make_chat_prompt(**chat_template, **tokenizer, std::move(input), max_tokens, stop);
  if (!prompt) {
    if (prompt.status().code() == Code::internal) return ApiError::internal("the chat template failed");
    return ApiError{400, "invalid_template", "the chat template refuses this conversation: " + prompt.status().message(), "messages", {}};
  }
  if (prompt->too_long_by_bound > 0) return context_exceeded(prompt->too_long_by_bound, backend.context());
  ChatPromptText out{std::move(prompt->text), std::move(prompt->ids), !tools.names.empty(), std::move(tools.names)};
  if (continued) {
    if (ends_with_think(out.text)) return ApiError::unsupported_value("messages", "this model's template cannot continue an assistant message");
    if (const size_t least = out.ids.size() + (*tokenizer)->least_tokens(*continued); least > max_tokens)
      return context_exceeded(least, backend.context());
    const std::vector<int32_t> more = (*tokenizer)->encode(*continued, {.parse_special = false, .add_special = false, .stop = stop});
    out.ids.insert(out.ids.end(), more.begin(), more.end());
    out.text += *continued;
  }
  if (out.ids.empty()) return ApiError::unsupported_value("messages", "the conversation renders to an empty prompt");
  return out;
}

Checked<GenerationPlan> plan_chat(const Json& body, const Backend& backend, const ServerLimits& limits) {
  if (auto error = check_one_constraint(body)) return *error;
  if (auto error = check_fields(body, chat_fields())) return *error;
  if (auto error = check_response_format(body)) return *error;
  if (auto error = check_modalities(body)) return *error;
  TURBO_CHECKED(CommonRequest common, read_common(body, backend, limits));
  engine::Request& request = common.request;
  request.logprobs = common.answer.logprobs = get_bool(body, "logprobs", false);
  if (const auto top = get_integer(body, "top_logprobs")) {
    if (!request.logprobs) return ApiError::unsupported_value("top_logprobs", "needs logprobs: true");
    request.n_top_logprobs = static_cast<uint32_t>(*top);
  }
  TURBO_CHECKED(ChatPromptText prompt, render_conversation(body, backend, backend.context()));
  const auto wanted = find_field(body, "max_completion_tokens") ? get_integer(body, "max_completion_tokens") : get_integer(body, "max_tokens");
  TURBO_CHECKED(request.max_tokens, fit_to_window(prompt.ids.size(), wanted, request.min_tokens, backend.context()));

  GenerationPlan plan;
  plan.answer = std::move(common.answer);
  plan.answer.id = request.name = "chatcmpl-" + random_id();
  plan.n = common.n;
  plan.format = make_chat_format(**backend.tokenizer());
  request.prompt = std::move(prompt.ids);
  ChoiceRules rules;
  rules.stops = common.stops;
  rules.logprobs = request.logprobs;
  rules.output.inside_thinking = ends_with_think(prompt.text);
  rules.output.thinking = (*backend.chat_template())->source().find(kThink) != std::string::npos;
  rules.output.tools = prompt.has_tools;
  rules.output.tool_names = prompt.tool_names;
  rules.output.single_tool = prompt.has_tools && !get_bool(body, "parallel_tool_calls", true);
  for (uint32_t k = 0; k < common.n; ++k) {
    plan.parts.push_back({request, rules});
    if (auto& seed = plan.parts.back().request.sampling.seed) *seed += k;
  }
  return plan;
}

}  // namespace turbo::server
