// Q1_0 matrices times a few rows of activations: the body of a stage, for a kernel of its own or a part of a larger one.
//
// A block of up to 8 waves computes tiles of 16 outputs for R rows. Each half of a wave owns one segment of the row's
// groups, so activations are prepared by the wave that reads them. The first weights are on their way before the
// activations are looked at.
#pragma once

#include <turbo/kernel/gpu/activation.hpp>
#include <turbo/kernel/gpu/norm.hpp>
#include <turbo/kernel/gpu/q1.hpp>

namespace turbo::gpu::q1 {

TB_DEVICE bool is_gated(uint32_t fuse) { return fuse >= fuse_silu; }

/// Matrix and tile of a unit; of a pair, `odd` says which. Matrices that are absent begin beyond every tile.
struct TilePlace {
  uint32_t matrix, tile;
};
TB_DEVICE TilePlace place_of(const Product& p, uint32_t unit, uint32_t odd) {
  if (is_gated(p.fuse)) return {odd, unit};
  TilePlace at = {0, unit};
  TB_UNROLL
  for (uint32_t i = 1; i < kMatrices; ++i) {
    const uint32_t first = p.matrix[i].first_tile;
    at = {unit >= first ? i : at.matrix, unit >= first ? unit - first : at.tile};
  }
  return at;
}

/// Addresses of the planes that hold the tile: selected, not looked up, so that they are in scalar registers.
struct TilePlanes {
  const uint8_t *signs, *scales;
};
TB_DEVICE TilePlanes planes_of(const Product& p, uint32_t unit, uint32_t odd) {
  const uint8_t *signs = p.matrix[0].signs, *scales = p.matrix[0].scales;
  uint32_t tile = unit;
  if (is_gated(p.fuse)) {
    signs = odd ? p.matrix[1].signs : signs;
    scales = odd ? p.matrix[1].scales : scales;
  } else {
    TB_UNROLL
    for (uint32_t i = 1; i < kMatrices; ++i) {
      const uint32_t first = p.matrix[i].first_tile;
      const uint8_t *const other_signs = p.matrix[i].signs, *const other_scales = p.matrix[i].scales;
      signs = unit >= first ? other_signs : signs;
      scales = unit >= first ? other_scales : scales;
      tile = unit >= first ? unit - first : tile;
    }
  }
  const uint64_t words = uint64_t{tile} * (p.n_groups * kTile);
  return {signs + words * 16, scales + words * 2};
}

TB_DEVICE float residual_of(const Product& p, uint32_t row, uint32_t o) {
  return p.fuse == fuse_add ? p.residual[row * p.residual_stride + o] : 0.f;
}

/// y = sum + bias, then the fusion; `up` counts for gates only, `residual` as residual_of gave it.
TB_DEVICE void finish(const Product& p, uint32_t m, uint32_t row, uint32_t o, float y, float up, float residual) {
  const Matrix& matrix = p.matrix[m];
  if (matrix.bias) y += matrix.bias[o];
  if (p.fuse == fuse_add) y = residual + y;
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
  float x[kBatch][4], weight[kBatch][4], row_scale = 0;  // of row lane % R
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
  constexpr bool kEarly = R == 1;  // with more rows the registers are worth more
  if (kEarly && n_tasks) load(0);
  if (square_slots) {
    constexpr uint32_t kRows = R < 2 ? R : 2;
    const uint32_t n_rows = p.max_rows - first_row;
    for (uint32_t r = 0; r < R; r += kRows)
      for (uint32_t v = wave(); v < kNormWaves; v += threads() / kWave) {
        float sums[kRows];
        const uint32_t from = min_of(r, n_rows - 1);
        norm_wave_rows<kRows>(p.x + (first_row + from) * p.x_stride, p.x_stride, n_rows - from, cols, v, sums);
        TB_UNROLL
        for (uint32_t k = 0; k < kRows; ++k)
          if (lane() == 0) square_slots[(r + k) * kNormWaves + v] = sums[k];
      }
    sync_block();
    row_scale = norm_scale(square_sum(square_slots, lane() % R), cols, p.eps);
  }
  TB_NO_UNROLL
  for (uint32_t task = 0; task < n_tasks; task += kBatch) {
    if (task || !kEarly) load(task);
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      if (task + k >= n_tasks) break;
      const uint32_t r = (task + k) / n, g = begin + (task + k) % n;
      if (p.norm) {
        const float scale = shuffle(row_scale, r);
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
    store_words(planes + to * kSharedGroupBytes + part * 16, load_words(p.planes + from * kGroupBytes + part * 16));
    if (part == 0) scales[to] = p.scales[from];
  }
}

/// Block `block` of n_blocks, rows [first_row, first_row + R), matvec_threads(n_groups) threads; `shared` holds
/// matvec_shared_bytes(R, n_groups).
///
/// Units are dealt over the blocks one by one. A block takes its tiles in pairs; an item is one step (a group of each
/// segment) of one pair, and the words of the next kPairs items are always on their way, whether they are steps of one
/// pair or many pairs. Rounds of kPairs items end with the outputs of the pairs that are complete.
template <uint32_t R>
TB_DEVICE void matvec(const Product& p, uint32_t block, uint32_t n_blocks, uint32_t first_row, uint8_t* shared) {
  constexpr uint32_t kPairs = pairs_of(R);
  const uint32_t n_groups = p.n_groups, length = segment_groups(n_groups);
  const uint32_t half = lane() / kTile, row = lane() % kTile, segment = 2 * wave() + half;
  uint8_t* const planes = shared;
  GroupScale* const scales = reinterpret_cast<GroupScale*>(planes + R * n_groups * kSharedGroupBytes);
  float* const square_slots = reinterpret_cast<float*>(scales + R * n_groups);
  float* const sums = square_slots + R * kNormWaves;
  const bool gated = is_gated(p.fuse);

  const uint32_t my_units = block < p.n_units ? (p.n_units - block + n_blocks - 1) / n_blocks : 0;
  const uint32_t n_pairs = gated ? my_units : (my_units + 1) / 2, n_items = n_pairs * length;
  const auto unit_of = [&](uint32_t pair, uint32_t t) { return block + n_blocks * (gated ? pair : 2 * pair + t); };

  Words4 words[kPairs][2];
  uint16_t weight_scale[kPairs][2];
  uint32_t coming_pair = 0, coming_step = 0;  // of the next item to load
  const auto load = [&](uint32_t k) {
    // Of an address only this part differs between lanes: the word in its tile.
    const uint32_t word = min_of(segment * length + coming_step, n_groups - 1) * kTile + row;
    TB_UNROLL
    for (uint32_t t = 0; t < 2; ++t) {
      const uint32_t unit = unit_of(coming_pair, t);
      if (unit < p.n_units) {
        const TilePlanes at = planes_of(p, unit, t);
        words[k][t] = load_stream(reinterpret_cast<const Words4*>(at.signs) + word);
        weight_scale[k][t] = load_stream(reinterpret_cast<const uint16_t*>(at.scales) + word);
      }
    }
    ++coming_step;
    coming_pair += coming_step == length;
    coming_step = coming_step == length ? 0 : coming_step;
  };
  TB_UNROLL
  for (uint32_t k = 0; k < kPairs; ++k) {
    words[k][0] = words[k][1] = {0, 0, 0, 0};
    weight_scale[k][0] = weight_scale[k][1] = 0;
    load(k);
  }

  const uint32_t begin = 2 * wave() * length, mine = min_of(begin + 2 * length, n_groups) - min_of(begin, n_groups);
  if (p.planes)
    copy_groups<R>(p, first_row, begin, mine, planes, scales);
  else
    prepare_groups<R>(p, first_row, begin, mine, planes, scales, p.norm ? square_slots : nullptr);
  sync_wave();

  // What a thread finishes of a round: output i of pairs first, first + 1, ..., i rising by the block's threads.
  const uint32_t per_tile = R * kTile, per_pair = gated ? per_tile : 2 * per_tile;
  struct Output {
    uint32_t sum, row, matrix, o;  // sum: place of its segment 0; of a gate, the up tile's is per_tile outputs on
    bool exists;
  };
  const auto output_of = [&](uint32_t first, uint32_t n, uint32_t i) {
    const uint32_t pair = first + i / per_pair, t = i % per_pair / per_tile, r = i % per_tile / kTile, unit = unit_of(pair, t);
    const TilePlace at = place_of(p, min_of(unit, p.n_units - 1), 0);
    const uint32_t o = at.tile * kTile + i % kTile;
    return Output{((pair % kPairs * 2 + t) * R + r) * kSumStride + i % kTile, r, at.matrix, o,
                  i < n * per_pair && unit < p.n_units && first_row + r < p.max_rows && o < p.matrix[at.matrix].rows};
  };
  const auto total = [&](uint32_t at) {
    const uint32_t n_segments = segments_of(n_groups);
    float f = 0;
    for (uint32_t k = 0; k < n_segments; ++k) f += sums[at + k * kTile];
    return f;
  };

  float acc[2][R];
  uint32_t pair = 0, step = 0;  // of the item in work
  TB_NO_UNROLL
  for (uint32_t base = 0; base < n_items; base += kPairs) {
    const uint32_t first_done = pair, n_done = min_of((base + kPairs) / length, n_pairs) - first_done;
    float residual = 0;  // of the thread's first output: on its way while the dots run
    if (p.fuse == fuse_add && n_done) {
      const Output first = output_of(first_done, n_done, thread());
      if (first.exists) residual = residual_of(p, first_row + first.row, first.o);
    }
    TB_UNROLL
    for (uint32_t k = 0; k < kPairs; ++k) {
      if (base + k >= n_items) continue;
      const uint32_t wanted = segment * length + step, group = min_of(wanted, n_groups - 1);
      const bool in_row = wanted < n_groups;
      if (step == 0) {
        TB_UNROLL
        for (uint32_t r = 0; r < R; ++r) acc[0][r] = acc[1][r] = 0;
      }
      const Words4 now[2] = {words[k][0], words[k][1]};
      const float d[2] = {half_to_float(weight_scale[k][0]), half_to_float(weight_scale[k][1])};
      // With few words in flight the next must be asked for before the dots; with many, copies are saved.
      constexpr bool kEarly = kPairs <= 2;
      if (kEarly) load(k);
      int32_t sum[2][R];
      group_dot<R, 2>(now, planes + group * kSharedGroupBytes, n_groups * kSharedGroupBytes, sum);
      if (!kEarly) load(k);
      TB_UNROLL
      for (uint32_t r = 0; r < R; ++r) {
        const GroupScale a = scales[r * n_groups + group];
        TB_UNROLL
        for (uint32_t t = 0; t < 2; ++t) {
          const float next = add_group(d[t], a, sum[t][r], acc[t][r]);
          acc[t][r] = in_row ? next : acc[t][r];
        }
      }
      if (++step == length) {
        float* const to = sums + pair % kPairs * (2 * R * kSumStride) + segment * kTile + row;
        TB_UNROLL
        for (uint32_t t = 0; t < 2; ++t) {
          TB_UNROLL
          for (uint32_t r = 0; r < R; ++r) to[(t * R + r) * kSumStride] = acc[t][r];
        }
        step = 0;
        ++pair;
      }
    }
    if (n_done == 0) continue;
    sync_block();
    for (uint32_t i = thread(); i < n_done * per_pair; i += threads()) {
      const Output out = output_of(first_done, n_done, i);
      if (!out.exists) continue;
      if (i != thread()) residual = residual_of(p, first_row + out.row, out.o);
      finish(p, out.matrix, first_row + out.row, out.o, total(out.sum), gated ? total(out.sum + R * kSumStride) : 0.f, residual);
    }
    if (base + kPairs < n_items) sync_block();  // the sums are written again
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
