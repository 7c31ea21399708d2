// Base class of samplers over abi/sampler.h. Override sample_row; rows of a batch are handed over one by one, so a
// row's bits cannot depend on its neighbours. A sampler that wants the whole batch overrides sample instead.
#pragma once

#include <turbo/abi/sampler.h>
#include <turbo/plugin.hpp>

#include <cmath>
#include <cstdint>
#include <span>

namespace turbo {

/// One row with the parameters of its request filled in (neutral values where the host gave none).
struct SampleRow {
  std::span<const float> logits;
  std::span<const uint32_t> mask;   // bit t set = token t allowed; empty = all
  std::span<const int32_t> prompt;  // committed prompt tokens
  std::span<const int32_t> output;  // committed generated tokens
  std::span<const int32_t> path;    // uncommitted tokens before the drawn one
  uint64_t position = 0;            // absolute position of the drawn token
  uint64_t seed = 0;
  float temperature = 1, top_p = 1, min_p = 0, typical_p = 1;
  float repetition_penalty = 1, presence_penalty = 0, frequency_penalty = 0;
  int32_t top_k = 0;
  std::span<const int32_t> bias_ids;
  std::span<const float> bias_values;

  bool allowed(uint32_t token) const { return mask.empty() || ((mask[token / 32] >> (token % 32)) & 1u); }
};

/// Where a row's answer goes. Whatever sample_row leaves untouched stays "no token" with TURBO_INTERNAL.
struct SampleAnswer {
  int32_t id = -1;
  turbo_status status = TURBO_INTERNAL;
  float* logprob = nullptr;           // null: not wanted
  std::span<int32_t> top_ids;         // empty: not wanted
  std::span<float> top_logprobs;
};

template <typename T>
class Sampler {
 public:
  virtual ~Sampler() = default;
  /// [engine] Throwing Failure ends this row only, with its code as the row's status.
  virtual void sample_row(const SampleRow& /*row*/, SampleAnswer& /*answer*/) {}

  virtual void sample(const turbo_sample& args) {
    for (uint32_t r = 0; r < args.n_rows; ++r) {
      SampleAnswer answer;
      if (args.logprobs) (answer.logprob = &args.logprobs[r])[0] = -INFINITY;
      if (args.n_top) {
        answer.top_ids = {args.top_ids + uint64_t{r} * args.n_top, args.n_top};
        answer.top_logprobs = {args.top_logprobs + uint64_t{r} * args.n_top, args.n_top};
        std::fill(answer.top_ids.begin(), answer.top_ids.end(), -1);
        std::fill(answer.top_logprobs.begin(), answer.top_logprobs.end(), -INFINITY);
      }
      const turbo_status thrown = guarded(nullptr, [&] { sample_row(row_of(args, r), answer); });
      args.row_status[r] = thrown != TURBO_OK ? thrown : answer.status;
      args.ids[r] = args.row_status[r] == TURBO_OK ? answer.id : -1;
    }
  }

  /// Row r of a batch; throws when its request does not exist.
  static SampleRow row_of(const turbo_sample& args, uint32_t r) {
    SampleRow row;
    row.logits = {args.logits + uint64_t{r} * args.logit_stride, args.vocab};
    if (args.mask) row.mask = {args.mask + uint64_t{r} * args.mask_stride, (uint64_t{args.vocab} + 31) / 32};
    if (args.path && args.path_length) row.path = {args.path + uint64_t{r} * args.path_stride, args.path_length[r]};
    row.position = args.row_position[r];
    const turbo_sampling_params& p = *args.params;
    const uint32_t q = args.row_request[r];
    detail::check(q < p.n_requests, "row names a request that is not there");
    if (args.path_length) detail::check(args.path_length[r] <= args.path_stride, "path is longer than its stride");
    const auto take = [q](const auto* array, auto& value) {
      if (array) value = array[q];
    };
    take(p.temperature, row.temperature);
    take(p.top_k, row.top_k);
    take(p.top_p, row.top_p);
    take(p.min_p, row.min_p);
    take(p.typical_p, row.typical_p);
    take(p.repetition_penalty, row.repetition_penalty);
    take(p.presence_penalty, row.presence_penalty);
    take(p.frequency_penalty, row.frequency_penalty);
    take(p.seed, row.seed);
    if (p.tokens && p.n_tokens && p.tokens[q]) {
      const uint32_t n_prompt = p.n_prompt ? std::min(p.n_prompt[q], p.n_tokens[q]) : 0;
      row.prompt = {p.tokens[q], n_prompt};
      row.output = {p.tokens[q] + n_prompt, p.n_tokens[q] - n_prompt};
    }
    if (p.bias_ids && p.bias_values && p.n_bias && p.bias_ids[q] && p.bias_values[q]) {
      row.bias_ids = {p.bias_ids[q], p.n_bias[q]};
      row.bias_values = {p.bias_values[q], p.n_bias[q]};
    }
    return row;
  }

  static const void* interface(std::string_view id) {
    static constexpr turbo_sampler table = {sizeof(turbo_sampler), 0, &c_sample};
    return id == TURBO_SAMPLER_1 ? &table : nullptr;
  }

 private:
  static turbo_status c_sample(void* self, const turbo_sample* args, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(self && args && TURBO_HAS(args, row_status), "sample");
      detail::check(args->params && TURBO_HAS(args->params, n_bias), "sampling parameters");
      if (args->n_rows == 0) return;
      detail::check(args->logits && args->row_request && args->row_position && args->ids && args->row_status, "sample arrays are null");
      detail::check(args->n_rows == 1 || args->logit_stride >= args->vocab, "rows of logits overlap");
      detail::check(!args->mask || args->n_rows == 1 || args->mask_stride >= (uint64_t{args->vocab} + 31) / 32, "rows of masks overlap");
      detail::check(args->n_top == 0 || (args->top_ids && args->top_logprobs), "arrays of alternatives are null");
      static_cast<T*>(self)->sample(*args);
    });
  }
};

}  // namespace turbo
