// What a caller asks of the engine and what it hears back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "engine/token_mask.h"

namespace turbo::engine {

/// Neutral values leave the model's distribution as it is. Ranges are checked by the caller that parsed them.
struct Sampling {
  float temperature = 1.0f;  // 0 = greedy
  int32_t top_k = 0;         // <= 0 off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float typical_p = 1.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::optional<uint64_t> seed;  // absent: drawn once per request
  std::vector<std::pair<int32_t, float>> logit_bias;
};

struct Request {
  std::string name;             // for logs ("chatcmpl-...")
  std::vector<int32_t> prompt;  // at least one token, all inside the vocabulary
  uint32_t max_tokens = 16;     // generated; 0 = prompt only
  uint32_t min_tokens = 0;      // end tokens are masked until this many were generated
  std::vector<int32_t> end_tokens;  // generation ends before emitting one of these; empty = ignore_eos
  Sampling sampling;
  std::vector<int32_t> banned_tokens;  // never drawn
  std::shared_ptr<TokenMask> mask;     // further limits, row by row; null = none
  bool logprobs = false;        // of each emitted token
  uint32_t n_top_logprobs = 0;  // alternatives, 0..20; needs logprobs
  bool prompt_logprobs = false; // score every prompt token after the first
  bool prompt_logits = false;   // with prompt_logprobs: hand over the raw rows too
  bool use_drafter = true;
  uint32_t draft_slots = 0;     // root included; 0 = profile's
  uint64_t timeout_ms = 0;      // 0 = none
  int32_t priority = 0;         // higher is served first, and keeps its blocks longer
  uint64_t client = 0;          // whose request it is: clients of equal priority share evenly
  bool use_prefix_cache = true; // reuse blocks of earlier requests and leave some for later ones
  std::string cache_salt;       // only requests with equal salts share blocks
};

struct TokenLogprob {
  int32_t id;
  float logprob;  // natural log, of the model's own distribution; -9999 for impossible
};

struct Token {
  int32_t id = 0;
  float logprob = 0;              // when asked for
  std::vector<TokenLogprob> top;  // when asked for
};

enum class FinishReason { stop, length, cancelled, timeout, failed };

struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t completion_tokens = 0;  // end token excluded
  uint32_t cached_tokens = 0;      // of the prompt, taken from the prefix cache
};

/// Durations in nanoseconds of the engine's clock.
struct Timings {
  uint64_t queued_ns = 0;    // submit to admission
  uint64_t prompt_ns = 0;    // admission to the first token (or end of the prompt)
  uint64_t generate_ns = 0;  // first token to the last
};

/// Decode steps of one row count.
struct StepsOfWidth {
  uint64_t steps = 0;
  uint64_t ns = 0;  // computing and sampling them
};

/// Steps of requests that draft and of those that do not: with both, what drafts cost and bring can be told.
struct Speculation {
  static constexpr uint32_t kMostRows = 64;  // steps of more rows, as those with prompts, count as of so many

  uint64_t rounds = 0;    // target steps that generated
  uint64_t drafted = 0;   // draft nodes verified
  uint64_t accepted = 0;  // of them
  uint64_t emitted = 0;   // tokens
  std::vector<uint64_t> accepted_by_depth;
  std::vector<StepsOfWidth> steps_by_rows;  // [rows of the step, others' included]; without the step of the first token
  uint64_t draft_ns = 0;                    // the engine spent in the drafter meanwhile, for all requests of the steps

  void add_step(uint32_t rows, uint64_t ns);
  void add(const Speculation& other);
};

enum class RequestState { waiting, prompt, generating };

/// What a live request is doing, for people who look.
struct RequestInfo {
  uint64_t id = 0;
  std::string name;
  RequestState state = RequestState::waiting;
  int32_t priority = 0;
  uint32_t prompt_tokens = 0, computed_tokens = 0, cached_tokens = 0, generated_tokens = 0, max_tokens = 0;
  uint64_t drafted = 0, accepted = 0;
  uint32_t preemptions = 0;
  uint64_t age_ms = 0;
  std::vector<int32_t> prompt;  // when asked for
};

struct Finish {
  FinishReason reason = FinishReason::stop;
  Status status;  // why, when failed
  int32_t stop_token = -1;  // the end token met, or -1
  Usage usage;
  Timings timings;
  Speculation speculation;
  uint32_t preemptions = 0;
};

/// Hears one request. Calls come from the engine thread, in order, and must return quickly: no blocking, no
/// engine calls other than cancel. on_finish is the last call and comes exactly once.
class Listener {
 public:
  virtual ~Listener() = default;
  /// The request left the queue.
  virtual void on_admitted() {}
  /// Scores of prompt tokens [first, first + n); token i's logprob given those before it.
  virtual void on_prompt_scores(uint32_t /*first*/, std::span<const Token> /*tokens*/) {}
  /// Logits [vocab] of the row at this prompt position; borrowed for the call.
  virtual void on_prompt_logits(uint32_t /*position*/, std::span<const float> /*logits*/) {}
  virtual void on_tokens(std::span<const Token> tokens) = 0;
  virtual void on_finish(const Finish& finish) = 0;
};

}  // namespace turbo::engine
