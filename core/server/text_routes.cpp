// Text utilities: tokens of a text or conversation, text of tokens, the rendered prompt.
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

Checked<std::vector<int32_t>> tokens_of(const Json& body, const Backend& backend, const text::Tokenizer& tokenizer) {
  if (find_field(body, "messages")) {
    TURBO_CHECKED(ChatPromptText prompt, render_conversation(body, backend));
    return std::move(prompt.ids);
  }
  const char* field = find_field(body, "content") ? "content" : "prompt";
  if (!find_field(body, field)) return ApiError::missing("content");
  text::EncodeOptions options;
  options.add_special = get_bool(body, "add_special", false);
  options.parse_special = get_bool(body, "parse_special", true);
  return tokenizer.encode(get_string(body, field), options);
}

}  // namespace

void App::tokenize(Call& call) {
  if (auto error = check_fields(call.body, tokenize_fields())) return respond(call.exchange, *error);
  const auto tokenizer = call.backend->tokenizer();
  if (!tokenizer) return respond(call.exchange, ApiError::not_supported("tokenizing with this model"));
  auto checked = tokens_of(call.body, *call.backend, **tokenizer);
  if (const auto* error = std::get_if<ApiError>(&checked)) return respond(call.exchange, *error);
  const auto& ids = std::get<std::vector<int32_t>>(checked);
  Json tokens = Json::array();
  for (const int32_t id : ids)
    tokens.push_back(get_bool(call.body, "with_pieces", false)
                         ? Json{{"id", id}, {"piece", piece_json((*tokenizer)->token_bytes(id))}}
                         : Json(id));
  respond(call.exchange, Json{{"tokens", std::move(tokens)}, {"count", ids.size()}, {"max_model_len", call.backend->context()}});
}

void App::detokenize(Call& call) {
  if (auto error = check_fields(call.body, detokenize_fields())) return respond(call.exchange, *error);
  const auto tokenizer = call.backend->tokenizer();
  if (!tokenizer) return respond(call.exchange, ApiError::not_supported("detokenizing with this model"));
  auto checked = read_token_ids(call.body["tokens"], "tokens", call.backend->vocab_size());
  if (const auto* error = std::get_if<ApiError>(&checked)) return respond(call.exchange, *error);
  const std::string text = text::sanitize_utf8((*tokenizer)->decode(std::get<std::vector<int32_t>>(checked)));
  respond(call.exchange, Json{{"content", text}, {"prompt", text}});
}

void App::apply_template(Call& call) {
  if (auto error = check_fields(call.body, chat_fields())) return respond(call.exchange, *error);
  auto checked = render_conversation(call.body, *call.backend);
  if (const auto* error = std::get_if<ApiError>(&checked)) return respond(call.exchange, *error);
  respond(call.exchange, Json{{"prompt", std::get<ChatPromptText>(checked).text}});
}

void App::count_chat(Call& call) {
  if (auto error = check_fields(call.body, chat_fields())) return respond(call.exchange, *error);
  auto checked = render_conversation(call.body, *call.backend);
  if (const auto* error = std::get_if<ApiError>(&checked)) return respond(call.exchange, *error);
  respond(call.exchange, Json{{"object", "response.input_tokens"}, {"input_tokens", std::get<ChatPromptText>(checked).ids.size()}});
}

}  // namespace turbo::server
