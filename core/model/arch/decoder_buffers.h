// What the decoder families share: the buffers of a pre-norm decoder step, its beginning and its end.
// The layer loop itself is written out in each family's file.
#pragma once

#include "model/arch/family.h"

namespace turbo::model {

struct DecoderBuffers {
  ProgramBuilder& program;
  const ModelConfig& config;
  const WeightSet& weights;
  StepProgram& step;
  const StepShape& shape;

  uint32_t residual, normed, q, k, v, attended, projected, gate, up, gated;

  DecoderBuffers(StepProgram& step, const ModelConfig& config, const WeightSet& weights, const StepShape& shape)
      : program(*step.builder), config(config), weights(weights), step(step), shape(shape) {
    residual = program.buffer("residual", config.n_embd);
    normed = program.buffer("normed", config.n_embd);
    q = program.buffer("q", uint64_t{config.n_heads} * config.head_dim_k);
    k = program.buffer("k", uint64_t{config.n_kv_heads} * config.head_dim_k);
    v = program.buffer("v", uint64_t{config.n_kv_heads} * config.head_dim_v);
    attended = program.buffer("attended", uint64_t{config.n_heads} * config.head_dim_v);
    projected = program.buffer("projected", config.n_embd);
    gate = program.buffer("gate", config.n_ff);
    up = program.buffer("up", config.n_ff);
    gated = program.buffer("gated", config.n_ff);
    step.taps.assign(shape.tap_layers.size(), TURBO_NO_BUFFER);
    program.embed(weights.find("token_embd.weight"), residual);
  }

  void rotate(uint32_t buffer, uint32_t n_heads) {
    program.rope({weights.rope_frequencies(), buffer, n_heads, config.head_dim_k, config.rope.dims,
                  config.rope.style == RopeStyle::halves ? TURBO_ROPE_HALVES : TURBO_ROPE_INTERLEAVED,
                  config.rope.magnitude()});
  }

  void attend(uint32_t layer, float scale) {
    if (shape.tap_attention) {
      step.query_taps.push_back(keep(q, uint64_t{config.n_heads} * config.head_dim_k));
      step.key_taps.push_back(keep(k, uint64_t{config.n_kv_heads} * config.head_dim_k));
    }
    program.attend({layer, q, attended, config.n_heads, scale});
  }

  /// A copy of a buffer that survives the run.
  uint32_t keep(uint32_t source, uint64_t width) {
    const uint32_t copy = program.buffer("tap", width, TURBO_ROWS_STEP, true);
    program.tap(source, copy);
    return copy;
  }

  /// Keep `source` as a tap if it was asked for under this number. The copy survives the layers that follow.
  void tap(uint32_t number, uint32_t source) {
    for (size_t i = 0; i < shape.tap_layers.size(); ++i) {
      if (shape.tap_layers[i] != static_cast<int32_t>(number)) continue;
      step.taps[i] = keep(source, config.n_embd);
    }
  }

  /// Final norm, the rows that give logits, output matrix (or the tied embedding).
  void finish() {
    program.rms_norm(weights.find("output_norm.weight"), residual, normed, config.norm_eps);
    tap(config.n_layers, normed);
    const uint32_t last = program.buffer("last", config.n_embd, TURBO_ROWS_LOGIT);
    step.logits = program.buffer("logits", config.vocab_size, TURBO_ROWS_LOGIT, true);
    program.gather_rows(normed, last);
    const turbo_weight* head = weights.find("output.weight");
    program.matmul(head ? head : weights.find("token_embd.weight"), last, step.logits, weights.find("output.bias"));
  }
};

}  // namespace turbo::model
