// Qwen3 (dense): pre-norm decoder, grouped-query attention, RMS norm of every query and key head before rotation,
// no projection biases, SiLU-gated feed-forward. Bonsai 1.7B, 4B and 8B are of this family.
#include "model/arch/decoder_buffers.h"

#include <cmath>

namespace turbo::model {

StepProgram build_qwen3(const ModelConfig& config, const WeightSet& weights, const StepShape& shape) {
  StepProgram step;
  step.builder = std::make_unique<ProgramBuilder>("qwen3", shape.max_rows, shape.max_logit_rows, shape.kv);
  DecoderBuffers b(step, config, weights, shape);
  ProgramBuilder& p = b.program;
  const float scale = 1.0f / std::sqrt(static_cast<float>(config.head_dim_k));

  for (uint32_t layer = 0; layer < config.n_layers; ++layer) {
    const auto weight = [&](const char* suffix) { return weights.layer(layer, suffix); };

    p.rms_norm(weight("attn_norm.weight"), b.residual, b.normed, config.norm_eps);
    p.matmul(weight("attn_q.weight"), b.normed, b.q);
    p.matmul(weight("attn_k.weight"), b.normed, b.k);
    p.matmul(weight("attn_v.weight"), b.normed, b.v);
    p.rms_norm(weight("attn_q_norm.weight"), b.q, b.q, config.norm_eps, config.n_heads);
    p.rms_norm(weight("attn_k_norm.weight"), b.k, b.k, config.norm_eps, config.n_kv_heads);
    b.rotate(b.q, config.n_heads);
    b.rotate(b.k, config.n_kv_heads);
    p.kv_append(layer, b.k, b.v);
    b.attend(layer, scale);
    p.matmul(weight("attn_output.weight"), b.attended, b.projected);
    p.add(b.residual, b.projected, b.residual);

    p.rms_norm(weight("ffn_norm.weight"), b.residual, b.normed, config.norm_eps);
    p.matmul(weight("ffn_gate.weight"), b.normed, b.gate);
    p.matmul(weight("ffn_up.weight"), b.normed, b.up);
    p.gated_act(b.gate, b.up, b.gated, TURBO_ACT_SILU);
    p.matmul(weight("ffn_down.weight"), b.gated, b.projected);
    p.add(b.residual, b.projected, b.residual);
    b.tap(layer, b.residual);
  }
  b.finish();
  return step;
}

}  // namespace turbo::model
