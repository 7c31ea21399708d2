#include "server/scores.h"

#include <cmath>

#include "text/utf8.h"

namespace turbo::server {
namespace {

double finite(float logprob) { return std::isfinite(logprob) ? static_cast<double>(logprob) : -9999.0; }

std::string token_text(int32_t id, const text::Tokenizer& tokenizer) { return text::sanitize_utf8(tokenizer.token_bytes(id)); }

Json entry(int32_t id, float logprob, const text::Tokenizer& tokenizer) {
  Json bytes = Json::array();
  for (const unsigned char byte : tokenizer.token_bytes(id)) bytes.push_back(byte);
  return Json{{"token", token_text(id, tokenizer)}, {"logprob", finite(logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

Json chat_logprobs(const std::vector<Score>& scores, const text::Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const Score& score : scores) {
    Json item = entry(score.id, score.logprob, tokenizer);
    Json& top = item["top_logprobs"] = Json::array();
    for (const engine::TokenLogprob& other : score.top) top.push_back(entry(other.id, other.logprob, tokenizer));
    content.push_back(std::move(item));
  }
  return Json{{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const std::vector<Score>& scores, const text::Tokenizer& tokenizer) {
  Json tokens = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  for (const Score& score : scores) {
    tokens.push_back(token_text(score.id, tokenizer));
    offsets.push_back(score.text_offset);
    if (!score.scored) {
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite(score.logprob));
    Json top = Json::object();
    for (const engine::TokenLogprob& other : score.top) top[token_text(other.id, tokenizer)] = finite(other.logprob);
    top[token_text(score.id, tokenizer)] = finite(score.logprob);
    tops.push_back(std::move(top));
  }
  return Json{{"tokens", std::move(tokens)}, {"token_logprobs", std::move(logprobs)},
              {"top_logprobs", std::move(tops)}, {"text_offset", std::move(offsets)}};
}

}  // namespace turbo::server
