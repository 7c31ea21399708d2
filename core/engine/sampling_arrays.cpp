#include "engine/sampling_arrays.h"

#include <algorithm>

#include "engine/logprobs.h"

namespace turbo::engine {

void StepRunner::SamplingArrays::begin(size_t n_requests, size_t n_rows, uint32_t n_top) {
  for (auto* array : {&temperature_, &top_p_, &min_p_, &typical_p_, &repetition_, &presence_, &frequency_}) array->clear();
  top_k_.clear();
  seed_.clear();
  tokens_.clear();
  n_tokens_.clear();
  n_prompt_.clear();
  n_bias_.clear();
  bias_.clear();
  bias_.reserve(n_requests);
  row_request_.clear();
  row_position_.clear();
  paths_.clear();
  n_top_ = n_top;
  ids_.assign(n_rows, -1);
  logprobs_.assign(n_rows, 0.0f);
  top_ids_.assign(n_rows * n_top, -1);
  top_logprobs_.assign(n_rows * n_top, 0.0f);
  status_.assign(n_rows, TURBO_OK);
}

void StepRunner::SamplingArrays::add_request(const Request& request, const sched::Sequence& sequence, uint64_t seed) {
  const Sampling& s = request.sampling;
  temperature_.push_back(s.temperature);
  top_k_.push_back(s.top_k);
  top_p_.push_back(s.top_p);
  min_p_.push_back(s.min_p);
  typical_p_.push_back(s.typical_p);
  repetition_.push_back(s.repetition_penalty);
  presence_.push_back(s.presence_penalty);
  frequency_.push_back(s.frequency_penalty);
  seed_.push_back(seed);
  tokens_.push_back(sequence.tokens.data());
  n_tokens_.push_back(static_cast<uint32_t>(sequence.tokens.size()));
  n_prompt_.push_back(sequence.n_prompt);
  Bias& bias = bias_.emplace_back();
  for (const auto& [id, value] : s.logit_bias) {
    bias.ids.push_back(id);
    bias.values.push_back(value);
  }
  n_bias_.push_back(static_cast<uint32_t>(bias.ids.size()));
}

void StepRunner::SamplingArrays::add_row(uint32_t request, uint64_t drawn_position) {
  row_request_.push_back(request);
  row_position_.push_back(drawn_position);
  paths_.emplace_back();
}

turbo_sample StepRunner::SamplingArrays::args(uint32_t vocab, bool logprobs) {
  bias_ids_.clear();
  bias_values_.clear();
  for (const Bias& bias : bias_) {
    bias_ids_.push_back(bias.ids.data());
    bias_values_.push_back(bias.values.data());
  }
  size_t stride = 1;
  for (const auto& path : paths_) stride = std::max(stride, path.size());
  path_.assign(stride * paths_.size(), -1);
  path_length_.clear();
  for (size_t row = 0; row < paths_.size(); ++row) {
    std::copy(paths_[row].begin(), paths_[row].end(), path_.begin() + row * stride);
    path_length_.push_back(static_cast<uint32_t>(paths_[row].size()));
  }

  params_ = {sizeof params_,        static_cast<uint32_t>(temperature_.size()),
             temperature_.data(),   top_k_.data(),
             top_p_.data(),         min_p_.data(),
             typical_p_.data(),     repetition_.data(),
             presence_.data(),      frequency_.data(),
             seed_.data(),          tokens_.data(),
             n_tokens_.data(),      n_prompt_.data(),
             bias_ids_.data(),      bias_values_.data(),
             n_bias_.data()};
  turbo_sample args{};
  args.struct_size = sizeof args;
  args.n_rows = static_cast<uint32_t>(row_request_.size());
  args.vocab = vocab;
  args.n_top = n_top_;
  args.params = &params_;
  args.row_request = row_request_.data();
  args.row_position = row_position_.data();
  args.path = path_.data();
  args.path_length = path_length_.data();
  args.path_stride = stride;
  args.ids = ids_.data();
  args.logprobs = logprobs ? logprobs_.data() : nullptr;
  args.top_ids = n_top_ ? top_ids_.data() : nullptr;
  args.top_logprobs = n_top_ ? top_logprobs_.data() : nullptr;
  args.row_status = status_.data();
  return args;
}

Status StepRunner::SamplingArrays::row_status(uint32_t row, uint32_t vocab) const {
  if (status_[row] == TURBO_CORRUPT_INPUT)
    return Status(Code::corrupt_input, "sampling: the model produced NaN logits", "check the model file (turbo inspect --check-weights)");
  if (status_[row] == TURBO_NOT_FOUND) return Status(Code::not_found, "sampling: every token is banned");
  if (status_[row] != TURBO_OK) return error(Code::internal, "sampling: status {}", status_[row]);
  if (ids_[row] < 0 || static_cast<uint32_t>(ids_[row]) >= vocab)
    return error(Code::internal, "sampling: the sampler returned token {} outside the vocabulary of {}", ids_[row], vocab);
  return Status::ok();
}

Token StepRunner::SamplingArrays::token(uint32_t row, bool logprobs, uint32_t n_top) const {
  Token token;
  token.id = status_[row] == TURBO_OK ? ids_[row] : -1;
  if (!logprobs) return token;
  const auto finite = [](float value) { return value > kImpossibleLogprob ? value : kImpossibleLogprob; };
  token.logprob = finite(logprobs_[row]);
  for (uint32_t i = 0; i < n_top; ++i) {
    const size_t at = size_t{row} * n_top_ + i;
    if (top_ids_[at] >= 0) token.top.push_back({top_ids_[at], finite(top_logprobs_[at])});
  }
  return token;
}

}  // namespace turbo::engine
