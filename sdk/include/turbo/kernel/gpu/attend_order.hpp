// The order of attention's arithmetic: one definition for every kernel that takes part, fused or not.
//
// Keys of a row are positions 0 .. p. A split is 64 positions, a chunk four splits, both at absolute places.
//   score     <q, key> * scale; the product's order is the key codec's own and depends on nothing else
//   chunk     m = largest score of its keys; weight w = exp_of(score - m)
//   split     l = keys i and i + 32 added, then a wave's tree; values: one multiply-add per key and element, in the order
//             of the value codec, absent keys left out
//   chunk     l and values: ((split 0 + split 1) + split 2) + split 3, absent splits as 0
//   row       from (-inf, 0, 0): chunks rising, merge_into; out = v / l
// So a row's bits do not depend on its tile, on other rows or on how chunks are given to blocks.
#pragma once

#include <turbo/kernel/gpu/norm.hpp>

namespace turbo::gpu {

constexpr uint32_t kSplit = 64, kChunk = 256, kChunkSplits = 4;
constexpr float kNoScore = -__builtin_inff();

/// e^x, about 1 ulp, the same bits on every platform and as turbo_exp of turbo/kernel/lanes.h. 0 below -87.336.
TB_DEVICE float exp_of(float x) {
  const float held = x > 88.722f ? 88.722f : x;
  const float n = rintf(held * 1.44269504088896341f);
  float r = fmadd(-n, 0.693359375f, held);
  r = fmadd(-n, -2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = fmadd(p, r, 1.3981999507e-3f);
  p = fmadd(p, r, 8.3334519073e-3f);
  p = fmadd(p, r, 4.1665795894e-2f);
  p = fmadd(p, r, 1.6666665459e-1f);
  p = fmadd(p, r, 5.0000001201e-1f);
  p = fmadd(p, r * r, r) + 1.0f;
  const bool nan = !(x == x), small = x < -87.336f;
  const int32_t k = nan || small ? 0 : static_cast<int32_t>(n), half = k >> 1;
  const float e = p * from_bits(static_cast<uint32_t>(half + 127) << 23) * from_bits(static_cast<uint32_t>(k - half + 127) << 23);
  return nan ? x : small ? 0.0f : e;
}

struct MergeFactors { float most, a, b; };

/// Factors of what is there (a) and of what comes (b).
TB_DEVICE MergeFactors merge_factors(float most, float next) {
  const float m = max_of(most, next);
  return {m, exp_of(most - m), exp_of(next - m)};
}
TB_DEVICE float merge_into(float there, float a, float next, float b) { return fmadd(there, a, next * b); }

namespace detail {
template <uint32_t M, uint32_t TO, uint32_t LIVE, uint32_t N, class T, class Join>
TB_DEVICE void reduce_step(T (&v)[N], Join join) {
  if constexpr (M >= TO && LIVE > 1) {
    const bool upper = (lane() & M) != 0;
    TB_UNROLL
    for (uint32_t i = 0; i < LIVE / 2; ++i) {
      const T low = v[i], high = v[i + LIVE / 2];  // values, not a choice of addresses: the array stays in registers
      const T keep = upper ? high : low, give = upper ? low : high;
      v[i] = join(keep, shuffle_xor(give, M));
    }
    reduce_step<M / 2, TO, LIVE / 2>(v, join);
  } else if constexpr (M >= TO) {
    v[0] = join(v[0], shuffle_xor(v[0], M));
    reduce_step<M / 2, TO, 1>(v, join);
  }
}
}  // namespace detail

/// N values of every lane, N a power of two, joined over the lanes at distance FROM, FROM/2, .., TO: afterwards the first
/// reduced_count values of a lane are whole, those of index reduced_index() on. Every value goes through the same tree.
template <uint32_t FROM, uint32_t TO, uint32_t N, class T, class Join>
TB_DEVICE void reduce_scatter(T (&v)[N], Join join) {
  detail::reduce_step<FROM, TO, N>(v, join);
}
template <uint32_t FROM, uint32_t TO, uint32_t N>
constexpr uint32_t reduced_count = FROM < TO ? N : N * TO > 2 * FROM ? N * TO / (2 * FROM) : 1;
/// First index that this lane holds after reduce_scatter<FROM, TO, N>.
template <uint32_t FROM, uint32_t TO, uint32_t N>
TB_DEVICE uint32_t reduced_index() {
  if constexpr (FROM < TO) {
    return 0;
  } else {
    constexpr uint32_t groups = 2 * FROM / TO, copies = N > groups ? 1 : groups / N;
    return (lane() & (2 * FROM - 1)) / TO / copies * reduced_count<FROM, TO, N>;
  }
}

struct AddJoin {
  template <class T> TB_DEVICE T operator()(T a, T b) const { return a + b; }
};
/// Of scores. One that is not a number makes its weight none either, so it need not be the largest.
struct MaxJoin {
  TB_DEVICE float operator()(float a, float b) const { return __builtin_fmaxf(a, b); }
};

/// RMS norm of one head in place by one wave. `head` is memory of the block; the wave meets before and after.
TB_DEVICE void norm_head(float* head, uint32_t d, const float* weight, float eps) {
  const float sum = wave_square_sum([&](uint32_t i) { return head[i]; }, d);
  const float scale = norm_scale(sum, d, eps);
  for (uint32_t e = lane(); e < d; e += kWave) head[e] = normed(head[e], scale, weight[e]);
}

}  // namespace turbo::gpu
