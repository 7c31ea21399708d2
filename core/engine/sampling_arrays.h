// The arrays one sampler call reads and writes, reused from step to step. Engine thread only.
#pragma once

#include <turbo/abi/sampler.h>

#include "engine/step_runner.h"

namespace turbo::engine {

struct StepRunner::SamplingArrays {
  /// Sizes for this call; keeps capacity.
  void begin(size_t n_requests, size_t n_rows, uint32_t n_top);
  void add_request(const Request& request, const sched::Sequence& sequence, uint64_t seed);
  void add_row(uint32_t request, uint64_t drawn_position);
  /// A draft token above the row added last.
  void add_path_token(int32_t token) { paths_.back().push_back(token); }

  turbo_sample args(uint32_t vocab, bool logprobs);
  Status row_status(uint32_t row, uint32_t vocab) const;
  Token token(uint32_t row, bool logprobs, uint32_t n_top) const;

 private:
  struct Bias {
    std::vector<int32_t> ids;
    std::vector<float> values;
  };
  turbo_sampling_params params_{};
  uint32_t n_top_ = 0;
  std::vector<float> temperature_, top_p_, min_p_, typical_p_, repetition_, presence_, frequency_;
  std::vector<int32_t> top_k_;
  std::vector<uint64_t> seed_;
  std::vector<const int32_t*> tokens_;
  std::vector<uint32_t> n_tokens_, n_prompt_, n_bias_;
  std::vector<Bias> bias_;
  std::vector<const int32_t*> bias_ids_;
  std::vector<const float*> bias_values_;
  std::vector<uint32_t> row_request_, path_length_;
  std::vector<uint64_t> row_position_;
  std::vector<std::vector<int32_t>> paths_;
  std::vector<int32_t> path_;
  std::vector<int32_t> ids_, top_ids_;
  std::vector<float> logprobs_, top_logprobs_;
  std::vector<turbo_status> status_;
};

}  // namespace turbo::engine
