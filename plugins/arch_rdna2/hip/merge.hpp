// The softmax of a split of 64 keys, and how two parts of a row's keys become one.
#pragma once

#include <turbo/kernel/gpu/device.hpp>

namespace turbo::gpu {

struct SplitSum { float m, l; };

/// A wave; lane l has the scores of keys l and l + 32, -infinity beyond the split's end. A split without keys gives (-infinity, 0).
TB_DEVICE SplitSum split_softmax(const float (&score)[2], float (&weight)[2]) {
  const float m = wave_max(max_of(score[0], score[1])), shift = m == -INFINITY ? 0.f : m;
  weight[0] = expf(score[0] - shift);
  weight[1] = expf(score[1] - shift);
  return {m, wave_sum(weight[0] + weight[1])};
}

struct Merged { float m, l, v; };

/// Part b behind part a.
TB_DEVICE Merged merged(const Merged& a, const Merged& b) {
  const float m = max_of(a.m, b.m), shift = m == -INFINITY ? 0.f : m, wa = expf(a.m - shift), wb = expf(b.m - shift);
  return {m, fmadd(a.l, wa, b.l * wb), fmadd(a.v, wa, b.v * wb)};
}

}  // namespace turbo::gpu
