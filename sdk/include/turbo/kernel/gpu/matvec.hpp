// Q1_0 matrices times a few rows of activations: the body of a stage, for a kernel of its own or a part of a larger one.
//
// A block of up to 8 waves computes tiles of 16 outputs for R rows. Each half of a wave owns one segment of the row's
// groups, so activations are prepared by the wave that reads them. Weights of the first tiles are loaded before the
// activations are looked at; then each slot is loaded again as soon as its words are in use.
#pragma once

#include <turbo/kernel/gpu/activation.hpp>
#include <turbo/kernel/gpu/norm.hpp>
#include <turbo/kernel/gpu/q1.hpp>

namespace turbo::gpu::q1 {

/// Matrix and tile of slot `slot` of unit `unit`.
struct TilePlace {
  uint32_t matrix, tile;
};
TB_DEVICE bool is_gated(uint32_t fuse) { return fuse >= fuse_silu; }
TB_DEVICE TilePlace place_of(const Product& p, uint32_t unit, uint32_t odd) {
  if (is_gated(p.fuse)) return {odd, unit};
  uint32_t m = 0;
  TB_UNROLL
  for (uint32_t i = 1; i < kMatrices; ++i) m = i < p.n_matrices && unit >= p.matrix[i].first_tile ? i : m;
  return {m, unit - p.matrix[m].first_tile};
}

/// y = sum + bias, then the fusion; `up` counts for gates only.
TB_DEVICE void finish(const Product& p, uint32_t m, uint32_t row, uint32_t o, float y, float up) {
  const Matrix& matrix = p.matrix[m];
  if (matrix.bias) y += matrix.bias[o];
  if (p.fuse == fuse_add) y = p.residual[row * p.residual_stride + o] + y;
  if (is_gated(p.fuse)) {
    if (p.matrix[1].bias) up += p.matrix[1].bias[o];
    y = p.fuse == fuse_silu ? silu_mul(y, up) : gelu_mul(y, up);
  }
  matrix.out[row * matrix.out_stride + o] = y;
}

/// Groups [begin, begin + n) of R rows from `first_row`, quantised by one wave into planes (kSharedGroupBytes a group)
/// and scales, rows n_groups apart. `square_slots` may be null: no norm; else the block works on the norm together.
template <uint32_t R>
TB_DEVICE void prepare_groups(const Product& p, uint32_t first_row, uint32_t begin, uint32_t n, uint8_t* planes,
                              GroupScale* scales, float* square_slots) {
  constexpr uint32_t kBatch = 4;  // groups in flight
  const uint32_t cols = p.n_groups * kGroup, n_tasks = R * n;
  const uint32_t last_row = p.max_rows - 1;
  float x[kBatch][4], weight[kBatch][4];
  const auto load = [&](uint32_t task) {
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t one = min_of(task + k, n_tasks - 1), r = one / n, first = (begin + one % n) * kGroup;
      const float* const row = p.x + min_of(first_row + r, last_row) * p.x_stride + first;
      TB_UNROLL
      for (uint32_t b = 0; b < 4; ++b) x[k][b] = row[element_of(lane(), b)];
      if (p.norm) {
        TB_UNROLL
        for (uint32_t b = 0; b < 4; ++b) weight[k][b] = p.norm[first + element_of(lane(), b)];
      }
    }
  };
  if (n_tasks) load(0);
  if (square_slots) {
    TB_NO_UNROLL
    for (uint32_t r = 0; r < R; ++r)
      block_square_sums(p.x + min_of(first_row + r, last_row) * p.x_stride, 0, cols, 1, square_slots + r * kNormWaves);
    sync_block();
  }
  TB_NO_UNROLL
  for (uint32_t task = 0; task < n_tasks; task += kBatch) {
    if (task) load(task);
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t one = min_of(task + k, n_tasks - 1), r = one / n, g = begin + one % n;
      if (p.norm) {
        const float scale = norm_scale(square_sum(square_slots, r), cols, p.eps);
        TB_UNROLL
        for (uint32_t b = 0; b < 4; ++b) x[k][b] = normed(x[k][b], scale, weight[k][b]);
      }
      const QuantisedWord q = quantise(x[k]);
      const uint32_t at = r * p.n_groups + g;
      reinterpret_cast<uint32_t*>(planes + at * kSharedGroupBytes)[plane_word_of(lane())] = q.word;
      if (lane() == 0) scales[at] = q.scale;
    }
  }
}

/// The same from prepared rows.
template <uint32_t R>
TB_DEVICE void copy_groups(const Product& p, uint32_t first_row, uint32_t begin, uint32_t n, uint8_t* planes,
                           GroupScale* scales) {
  const uint32_t n_pieces = R * n * 8;
  for (uint32_t i = lane(); i < n_pieces; i += kWave) {
    const uint32_t one = i / 8, part = i % 8, r = one / n, g = begin + one % n;
    const uint64_t from = uint64_t{min_of(first_row + r, p.max_rows - 1)} * p.n_groups + g;
    const uint32_t to = r * p.n_groups + g;
    *reinterpret_cast<Words4*>(planes + to * kSharedGroupBytes + part * 16) =
        *reinterpret_cast<const Words4*>(p.planes + from * kGroupBytes + part * 16);
    if (part == 0) scales[to] = p.scales[from];
  }
}

/// Block `block` of n_blocks, rows [first_row, first_row + R), matvec_threads(n_groups) threads; `shared` holds
/// matvec_shared_bytes(R, n_groups).
template <uint32_t R>
TB_DEVICE void matvec(const Product& p, uint32_t block, uint32_t n_blocks, uint32_t first_row, uint8_t* shared) {
  constexpr uint32_t kSlots = slots_of(R);
  const uint32_t n_groups = p.n_groups, length = segment_groups(n_groups);
  const uint32_t half = lane() / kTile, row = lane() % kTile, segment = 2 * wave() + half;
  uint8_t* const planes = shared;
  GroupScale* const scales = reinterpret_cast<GroupScale*>(planes + R * n_groups * kSharedGroupBytes);
  float* const sums = reinterpret_cast<float*>(scales + R * n_groups);
  const bool gated = is_gated(p.fuse);

  // Slot s of batch b: units are dealt over the blocks one by one; a pair takes two slots.
  const auto unit_of = [&](uint32_t batch, uint32_t slot) {
    return gated ? block + n_blocks * (batch * (kSlots / 2) + slot / 2) : block + n_blocks * (batch * kSlots + slot);
  };
  Words4 words[kSlots];
  uint16_t weight_scale[kSlots];
  const auto load = [&](uint32_t batch, uint32_t slot, uint32_t step) {
    const uint32_t unit = unit_of(batch, slot);
    if (unit >= p.n_units) return;
    const TilePlace at = place_of(p, unit, slot & 1);
    const uint32_t group = min_of(segment * length + step, n_groups - 1);
    const uint64_t word = (uint64_t{at.tile} * n_groups + group) * kTile + row;
    words[slot] = load_stream(reinterpret_cast<const Words4*>(p.matrix[at.matrix].signs) + word);
    weight_scale[slot] = load_stream(reinterpret_cast<const uint16_t*>(p.matrix[at.matrix].scales) + word);
  };
  TB_UNROLL
  for (uint32_t s = 0; s < kSlots; ++s) {
    words[s] = {0, 0, 0, 0};
    weight_scale[s] = 0;
    load(0, s, 0);
  }

  const uint32_t begin = 2 * wave() * length, mine = min_of(begin + 2 * length, n_groups) - min_of(begin, n_groups);
  if (p.planes)
    copy_groups<R>(p, first_row, begin, mine, planes, scales);
  else
    prepare_groups<R>(p, first_row, begin, mine, planes, scales, p.norm ? sums : nullptr);
  sync_wave();

  TB_NO_UNROLL
  for (uint32_t batch = 0; unit_of(batch, 0) < p.n_units; ++batch) {
    float acc[kSlots][R];
    TB_UNROLL
    for (uint32_t s = 0; s < kSlots; ++s) {
      TB_UNROLL
      for (uint32_t r = 0; r < R; ++r) acc[s][r] = 0;
    }
    TB_NO_UNROLL
    for (uint32_t step = 0; step < length; ++step) {
      const uint32_t wanted = segment * length + step, group = min_of(wanted, n_groups - 1);
      const bool in_row = wanted < n_groups, last = step + 1 == length;
      TB_UNROLL
      for (uint32_t s = 0; s < kSlots; s += 2) {
        if (unit_of(batch, s) >= p.n_units) continue;
        const Words4 now[2] = {words[s], words[s + 1]};
        const float d[2] = {half_to_float(weight_scale[s]), half_to_float(weight_scale[s + 1])};
        load(last ? batch + 1 : batch, s, last ? 0 : step + 1);
        load(last ? batch + 1 : batch, s + 1, last ? 0 : step + 1);
        int32_t sum[2][R];
        group_dot<R, 2>(now, planes + group * kSharedGroupBytes, n_groups * kSharedGroupBytes, sum);
        TB_UNROLL
        for (uint32_t r = 0; r < R; ++r) {
          const GroupScale a = scales[r * n_groups + group];
          TB_UNROLL
          for (uint32_t t = 0; t < 2; ++t) {
            const float next = add_group(d[t], a, sum[t][r], acc[s + t][r]);
            acc[s + t][r] = in_row ? next : acc[s + t][r];
          }
        }
      }
    }
    sync_block();  // sums of the batch before, or of the norm, were read
    TB_UNROLL
    for (uint32_t s = 0; s < kSlots; ++s) {
      TB_UNROLL
      for (uint32_t r = 0; r < R; ++r) sums[(s * R + r) * kSumStride + segment * kTile + row] = acc[s][r];
    }
    sync_block();
    const auto total = [&](uint32_t slot, uint32_t r, uint32_t output) {
      const float* const from = sums + (slot * R + r) * kSumStride + output;
      const uint32_t n_segments = segments_of(n_groups);
      float f = 0;
      for (uint32_t k = 0; k < n_segments; ++k) f += from[k * kTile];
      return f;
    };
    const uint32_t per_slot = R * kTile, n_outputs = (gated ? kSlots / 2 : kSlots) * per_slot;
    for (uint32_t i = thread(); i < n_outputs; i += threads()) {
      const uint32_t slot = gated ? i / per_slot * 2 : i / per_slot, r = i / kTile % R;
      const uint32_t unit = unit_of(batch, slot);
      if (unit >= p.n_units || first_row + r >= p.max_rows) continue;
      const TilePlace at = place_of(p, unit, 0);
      const uint32_t o = at.tile * kTile + i % kTile;
      if (o >= p.matrix[at.matrix].rows) continue;
      finish(p, at.matrix, first_row + r, o, total(slot, r, i % kTile), gated ? total(slot + 1, r, i % kTile) : 0.f);
    }
  }
}

/// Prepare one row for kernels that read prepared rows: the whole block; `slots` is shared memory of kNormWaves floats.
TB_DEVICE void prepare_row(const Product& p, uint32_t row, float* slots) {
  const uint32_t cols = p.n_groups * kGroup, n_waves = threads() / kWave;
  const float* const x = p.x + row * p.x_stride;
  float scale = 0;
  if (p.norm) scale = norm_scale(block_square_sum(x, cols, slots), cols, p.eps);
  for (uint32_t g = wave(); g < p.n_groups; g += n_waves) {
    float v[4];
    TB_UNROLL
    for (uint32_t b = 0; b < 4; ++b) {
      const uint32_t i = g * kGroup + element_of(lane(), b);
      v[b] = p.norm ? normed(x[i], scale, p.norm[i]) : x[i];
    }
    const QuantisedWord q = quantise(v);
    const uint64_t at = uint64_t{row} * p.n_groups + g;
    reinterpret_cast<uint32_t*>(p.planes + at * kGroupBytes)[plane_word_of(lane())] = q.word;
    if (lane() == 0) p.scales[at] = q.scale;
  }
}

}  // namespace turbo::gpu::q1
