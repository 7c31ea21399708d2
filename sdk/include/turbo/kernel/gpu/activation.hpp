// Gated activations, one way of rounding for every kernel of the device tiers.
#pragma once

#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

TB_DEVICE float silu_mul(float gate, float up) { return (gate / (1.f + expf(-gate))) * up; }

/// tanh form: 0.5 x (1 + tanh u) is x / (1 + exp(-2 u)).
TB_DEVICE float gelu_mul(float gate, float up) {
  const float two_u = 1.5957691216057308f * (gate * fmadd(0.044715f, gate * gate, 1.f));
  return (gate / (1.f + expf(-two_u))) * up;
}

}  // namespace turbo::gpu
