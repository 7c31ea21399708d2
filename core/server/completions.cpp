#include "server/completions.h"

#include "server/scores.h"
#include "text/utf8.h"

namespace turbo::server {
namespace {

constexpr size_t kMaxPrompts = 64;

class CompletionFormat : public AnswerFormat {
 public:
  explicit CompletionFormat(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  std::string first(const Answer&, uint32_t) const override { return {}; }

  std::vector<std::string> deltas(const Answer& answer, uint32_t choice, const Choice::Output& output) const override {
    std::string text;
    for (const Delta& delta : output.deltas) text += delta.text;
    return {event(answer, Json::array({one(answer, choice, text, output.scores, nullptr)}))};
  }
  std::string last(const Answer& answer, uint32_t choice, const std::string& reason) const override {
    return event(answer, Json::array({one(answer, choice, "", {}, reason)}));
  }
  std::string usage(const Answer& answer, const AnswerUsage& usage, const engine::Finish* timings) const override {
    Json chunk = envelope(answer, Json::array());
    chunk["usage"] = usage_json(usage);
    if (timings) chunk["timings"] = timings_json(*timings);
    return to_text(chunk);
  }
  std::string whole(const Answer& answer, const std::vector<Whole>& wholes, const AnswerUsage& usage,
                    const engine::Finish* timings) const override {
    Json choices = Json::array();
    for (uint32_t i = 0; i < wholes.size(); ++i) {
      std::string text;
      for (const Delta& delta : wholes[i].output.deltas) text += delta.text;
      choices.push_back(one(answer, i, text, wholes[i].output.scores, wholes[i].finish_reason));
    }
    Json body = envelope(answer, std::move(choices));
    body["usage"] = usage_json(usage);
    if (timings) body["timings"] = timings_json(*timings);
    return to_text(body);
  }

 private:
  Json one(const Answer& answer, uint32_t choice, const std::string& text, const std::vector<Score>& scores, Json reason) const {
    return Json{{"index", choice},
                {"text", text},
                {"logprobs", answer.logprobs ? completion_logprobs(scores, tokenizer_) : Json(nullptr)},
                {"finish_reason", std::move(reason)}};
  }
  static Json envelope(const Answer& answer, Json choices) {
    return Json{{"id", answer.id},       {"object", "text_completion"},
                {"created", answer.created}, {"model", answer.model},
                {"system_fingerprint", answer.fingerprint}, {"choices", std::move(choices)}};
  }
  static std::string event(const Answer& answer, Json choices) {
    Json chunk = envelope(answer, std::move(choices));
    if (answer.include_usage) chunk["usage"] = nullptr;
    return to_text(chunk);
  }
  const text::Tokenizer& tokenizer_;
};

struct Prompt {
  std::vector<int32_t> ids;
  std::string text;
};

Checked<Prompt> text_prompt(const std::string& text, const std::string& param, const Backend& backend, const text::Tokenizer& tokenizer) {
  if (const size_t least = tokenizer.least_tokens(text); least > backend.context()) return context_exceeded(least, backend.context());
  Prompt prompt{tokenizer.encode(text), text};
  if (prompt.ids.empty()) {
    if (!tokenizer.bos()) return ApiError::out_of_range(param, "a non-empty string: the model has no begin token");
    prompt.ids.push_back(*tokenizer.bos());
  }
  return prompt;
}

Checked<Prompt> id_prompt(const Json& ids, const std::string& param, const Backend& backend, const text::Tokenizer& tokenizer) {
  if (ids.empty()) return ApiError::out_of_range(param, "a non-empty array");
  Prompt prompt;
  TURBO_CHECKED(prompt.ids, read_token_ids(ids, param, backend.vocab_size()));
  prompt.text = text::sanitize_utf8(tokenizer.decode(prompt.ids));
  return prompt;
}

Checked<std::vector<Prompt>> read_prompts(const Json& field, const Backend& backend, const text::Tokenizer& tokenizer) {
  std::vector<Prompt> prompts;
  if (field.is_string()) {
    TURBO_CHECKED(Prompt prompt, text_prompt(field.get<std::string>(), "prompt", backend, tokenizer));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (field.empty()) return ApiError::out_of_range("prompt", "a non-empty array");
  if (field[0].is_number()) {
    TURBO_CHECKED(Prompt prompt, id_prompt(field, "prompt", backend, tokenizer));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  if (field.size() > kMaxPrompts) return ApiError::out_of_range("prompt", "an array of at most 64 prompts");
  for (size_t i = 0; i < field.size(); ++i) {
    const std::string param = fmt::format("prompt[{}]", i);
    if (!field[i].is_string() && !field[i].is_array()) return ApiError::invalid_type(param, "a string or an array of token ids");
    TURBO_CHECKED(Prompt prompt, field[i].is_string() ? text_prompt(field[i].get<std::string>(), param, backend, tokenizer)
                                                      : id_prompt(field[i], param, backend, tokenizer));
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

}  // namespace

Checked<GenerationPlan> plan_completion(const Json& body, const Backend& backend, const ServerLimits& limits) {
  if (auto error = check_one_constraint(body)) return *error;
  if (auto error = check_fields(body, completion_fields())) return *error;
  if (auto error = check_response_format(body)) return *error;
  const auto tokenizer = backend.tokenizer();
  if (!tokenizer) return ApiError::not_supported("text generation: " + tokenizer.status().message());
  TURBO_CHECKED(CommonRequest common, read_common(body, backend, limits));
  if (const auto best_of = get_integer(body, "best_of"); best_of && *best_of != common.n)
    return ApiError::unsupported_value("best_of", "only a value equal to n is supported");
  TURBO_CHECKED(std::vector<Prompt> prompts, read_prompts(*find_field(body, "prompt"), backend, **tokenizer));
  if (prompts.size() * common.n > limits.max_queue)
    return ApiError::out_of_range("n", fmt::format("so small that prompts times n is at most {}", limits.max_queue));

  const bool echo = get_bool(body, "echo", false);
  const auto logprobs = get_integer(body, "logprobs");
  common.request.logprobs = common.answer.logprobs = logprobs.has_value();
  common.request.n_top_logprobs = static_cast<uint32_t>(logprobs.value_or(0));
  common.request.prompt_logprobs = echo && logprobs;

  GenerationPlan plan;
  plan.answer = std::move(common.answer);
  plan.answer.id = "cmpl-" + random_id();
  plan.n = common.n;
  plan.format = std::make_shared<CompletionFormat>(**tokenizer);
  for (const Prompt& prompt : prompts) {
    TURBO_CHECKED(const uint32_t max_tokens, fit_to_window(prompt.ids.size(), get_integer(body, "max_tokens").value_or(16),
                                                           common.request.min_tokens, backend.context()));
    for (uint32_t k = 0; k < common.n; ++k) {
      GenerationPlan::Part part;
      part.request = common.request;
      part.request.name = plan.answer.id;
      part.request.prompt = prompt.ids;
      part.request.max_tokens = max_tokens;
      if (part.request.sampling.seed) *part.request.sampling.seed += k;
      part.rules.stops = common.stops;
      part.rules.logprobs = part.request.logprobs;
      if (echo) part.rules.echo = prompt.text;
      if (part.request.prompt_logprobs) part.rules.echo_tokens = prompt.ids;
      plan.parts.push_back(std::move(part));
    }
  }
  return plan;
}

}  // namespace turbo::server
