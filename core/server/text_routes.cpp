// Text utilities: tokens of a text or conversation, text of tokens, the rendered prompt.
#include <iterator>

#include "server/app.h"
#include "server/chat.h"
#include "text/utf8.h"

namespace turbo::server {
namespace {

Json piece_json(std::string_view bytes) {
  if (text::sanitize_utf8(bytes) == bytes) return std::string(bytes);
  Json list = Json::array();
  for (const unsigned char byte : bytes) list.push_back(byte);
  return list;
}

// Bytes of all strings in a value; its depth is bounded.
size_t text_bytes(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().size();
  size_t sum = 0;
  if (value.is_structured())
    for (const Json& item : value) sum += text_bytes(item);
  return sum;
}

ApiError text_too_long(const std::string& param, size_t limit) {
  return {413, "text_too_long", fmt::format("{}: text to tokenize is limited to {} bytes", param, limit), param, {}};
}

// Time and memory of a rendering grow with what goes into it.
std::optional<ApiError> check_conversation_size(const Json& body, size_t limit) {
  size_t bytes = 0;
  for (const char* field : {"messages", "tools", "chat_template_kwargs"})
    if (const Json* value = find_field(body, field); value && (bytes += text_bytes(*value)) > limit) return text_too_long(field, limit);
  return std::nullopt;
}

Checked<std::vector<int32_t>> tokens_of(const Json& body, const Backend& backend, const text::Tokenizer& tokenizer,
                                        const std::atomic<bool>& gone, size_t limit) {
  if (find_field(body, "messages")) {
    if (auto error = check_conversation_size(body, limit)) return *error;
    TURBO_CHECKED(ChatPromptText prompt, render_conversation(body, backend, SIZE_MAX, &gone));
    return std::move(prompt.ids);
  }
  const char* field = find_field(body, "content") ? "content" : "prompt";
  const Json* text = find_field(body, field);
  if (!text) return ApiError::missing("content");
  if (text_bytes(*text) > limit) return text_too_long(field, limit);
  text::EncodeOptions options;
  options.add_special = get_bool(body, "add_special", false);
  options.parse_special = get_bool(body, "parse_special", true);
  options.stop = &gone;
  return tokenizer.encode(text->get_ref<const std::string&>(), options);
}

}  // namespace

App::Outcome App::tokenize(const Work& work) {
  if (auto error = check_fields(work.body, tokenize_fields())) return std::move(*error);
  const auto tokenizer = work.backend.tokenizer();
  if (!tokenizer) return ApiError::not_supported("tokenizing with this model");
  auto checked = tokens_of(work.body, work.backend, **tokenizer, work.gone, kTokenizeBytes);
  if (auto* error = std::get_if<ApiError>(&checked)) return std::move(*error);
  const auto& ids = std::get<std::vector<int32_t>>(checked);
  const bool with_pieces = get_bool(work.body, "with_pieces", false);
  // Written straight to text: a tree of millions of tokens would take many times the memory.
  std::string json = "{\"tokens\":[";
  for (size_t i = 0; i < ids.size() && !work.gone; ++i) {
    if (i) json += ',';
    if (with_pieces) json += to_text(Json{{"id", ids[i]}, {"piece", piece_json((*tokenizer)->token_bytes(ids[i]))}});
    else fmt::format_to(std::back_inserter(json), "{}", ids[i]);
  }
  fmt::format_to(std::back_inserter(json), "],\"count\":{},\"max_model_len\":{}}}", ids.size(), work.backend.context());
  return json;
}

App::Outcome App::detokenize(const Work& work) {
  if (auto error = check_fields(work.body, detokenize_fields())) return std::move(*error);
  const auto tokenizer = work.backend.tokenizer();
  if (!tokenizer) return ApiError::not_supported("detokenizing with this model");
  auto checked = read_token_ids(work.body["tokens"], "tokens", work.backend.vocab_size());
  if (auto* error = std::get_if<ApiError>(&checked)) return std::move(*error);
  const std::string text = text::sanitize_utf8((*tokenizer)->decode(std::get<std::vector<int32_t>>(checked)));
  return to_text(Json{{"content", text}, {"prompt", text}});
}

App::Outcome App::apply_template(const Work& work) {
  if (auto error = check_fields(work.body, chat_fields())) return std::move(*error);
  if (auto error = check_conversation_size(work.body, kTokenizeBytes)) return std::move(*error);
  auto checked = render_conversation(work.body, work.backend, SIZE_MAX, &work.gone);
  if (auto* error = std::get_if<ApiError>(&checked)) return std::move(*error);
  return to_text(Json{{"prompt", std::get<ChatPromptText>(checked).text}});
}

App::Outcome App::count_chat(const Work& work) {
  if (auto error = check_fields(work.body, chat_fields())) return std::move(*error);
  if (auto error = check_conversation_size(work.body, kTokenizeBytes)) return std::move(*error);
  auto checked = render_conversation(work.body, work.backend, SIZE_MAX, &work.gone);
  if (auto* error = std::get_if<ApiError>(&checked)) return std::move(*error);
  return to_text(Json{{"object", "response.input_tokens"}, {"input_tokens", std::get<ChatPromptText>(checked).ids.size()}});
}

}  // namespace turbo::server
