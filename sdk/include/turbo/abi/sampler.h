/* sampler: logits of rows -> token ids. Parameters come as arrays by request; penalties count each row's own
 * path (draft tokens above it) as if they had been generated, so a verify step samples exactly what plain
 * decoding would.
 *
 * Draw rule (turbo's exactness rests on it): at absolute position p with seed s, u = turbo_uniform(s, p)
 * (turbo/kernel/random.h); the token is the smallest index in descending-probability order (ties: lower id
 * first) whose cumulative probability exceeds u. Temperature 0 is argmax, ties to the lower id. */
#ifndef TURBO_ABI_SAMPLER_H
#define TURBO_ABI_SAMPLER_H

#include <turbo/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_SAMPLER_1 "turbo.sampler/1"

/* Arrays indexed by request. Null array = the neutral value for all (seed 0, no tokens, no bias). */
typedef struct turbo_sampling_params {
  uint32_t struct_size;
  uint32_t n_requests;
  const float* temperature;        /* 0 = greedy; neutral 1 */
  const int32_t* top_k;            /* <= 0 off */
  const float* top_p;              /* 1 off */
  const float* min_p;              /* 0 off */
  const float* typical_p;          /* 1 off */
  const float* repetition_penalty; /* 1 off; over prompt and output */
  const float* presence_penalty;   /* 0 off; over output only */
  const float* frequency_penalty;  /* 0 off; over output only */
  const uint64_t* seed;
  const int32_t* const* tokens;    /* committed tokens, prompt first */
  const uint32_t* n_tokens;
  const uint32_t* n_prompt;        /* of tokens, how many are prompt */
  const int32_t* const* bias_ids;  /* logit bias; bias <= -100 bans */
  const float* const* bias_values;
  const uint32_t* n_bias;
} turbo_sampling_params;

typedef struct turbo_sample {
  uint32_t struct_size;
  uint32_t n_rows;
  uint32_t vocab;
  uint32_t n_top;               /* alternatives wanted per row, 0..20 */
  const float* logits;          /* [n_rows][logit_stride], device memory on device tiers; not written */
  uint64_t logit_stride;
  const turbo_sampling_params* params;
  const uint32_t* row_request;  /* [n_rows] */
  const uint64_t* row_position; /* [n_rows] absolute position of the token being drawn */
  const int32_t* path;          /* [n_rows][path_stride] uncommitted tokens before the drawn one, in order */
  const uint32_t* path_length;  /* [n_rows]; null = all 0 */
  uint64_t path_stride;
  const uint32_t* mask;         /* [n_rows][mask_stride] bit t set = token t allowed; null = all */
  uint64_t mask_stride;         /* words */
  /* out */
  int32_t* ids;                 /* [n_rows]; -1 when status is not ok */
  /* Log-probabilities are of the model's own distribution: temperature 1, before bias, mask and penalties; minus
   * infinity for an impossible token. */
  float* logprobs;              /* [n_rows] of the drawn token; null allowed */
  int32_t* top_ids;             /* [n_rows][n_top] descending, -1 past the vocabulary; null when n_top is 0 */
  float* top_logprobs;          /* [n_rows][n_top] */
  /* [n_rows] TURBO_CORRUPT_INPUT: NaN logits; TURBO_NOT_FOUND: no token left (masked, banned or minus infinity);
   * TURBO_INVALID_ARGUMENT: parameters of the row's request out of range. */
  turbo_status* row_status;
} turbo_sample;

typedef struct turbo_sampler {
  uint32_t struct_size;
  uint32_t reserved;
  /* [engine] Rows are independent: a row's result has the same bits alone and in any batch. */
  turbo_status (*sample)(void* self, const turbo_sample* args, turbo_error* error);
} turbo_sampler;

#ifdef __cplusplus
}
#endif
#endif
