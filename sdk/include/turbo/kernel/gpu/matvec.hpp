// Q1_0 matrices times a few rows of bytes: the body of a stage, for a kernel of its own or a part of a larger one.
//
// A block of up to 16 waves computes units of 32 outputs for R rows; each half of a wave owns one segment of the row's
// groups. Weights come first: the words in flight are asked for before the block waits for its input.
//
// Where the input comes from and where outputs go is the Io's: memory (MemoryIo), or mail between the blocks of one launch
// (mail.hpp). An Io has
//   wait(p)                                           until the input may be read; once, before the first fetch. Gives n_live
//   fetch<R>(p, first_row, n_live, begin, n, shared)  by a wave: groups [begin, begin + n) of R rows to shared memory
//   squares(p, row, n_live, n_tiles)                  by a wave: what the lane adds of a row's squares (q8_part)
//   floats(p, at, row, o, y), bytes(p, at, row, y, w) by a wave: outputs of a unit and, of matrix 0, their tile
//   moment(n)                                         1: the wave's input is there; 2: first outputs are summed
#pragma once

#include <turbo/kernel/gpu/activation.hpp>
#include <turbo/kernel/gpu/q1.hpp>
#include <turbo/kernel/gpu/q8.hpp>

namespace turbo::gpu::q1 {

TB_DEVICE bool is_gated(uint32_t fuse) { return fuse >= fuse_silu; }

/// Matrix and unit in it of a unit of all matrices; gated: of gate (odd 0) or up (1). Matrices that are absent begin beyond
/// every unit.
struct UnitPlace {
  uint32_t matrix, unit;
};
TB_DEVICE UnitPlace place_of(const Product& p, uint32_t unit, uint32_t odd) {
  if (is_gated(p.fuse)) return {odd, unit};
  if (p.n_matrices == 1) return {0, unit};
  UnitPlace at = {0, unit};
  TB_UNROLL
  for (uint32_t i = 1; i < kMatrices; ++i) {
    const uint32_t first = p.matrix[i].first_unit;
    at = {unit >= first ? i : at.matrix, unit >= first ? unit - first : at.unit};
  }
  return at;
}

/// Addresses of the planes that hold the first tile of the unit; the second's is n_groups * kTile words on.
struct UnitPlanes {
  const uint8_t *signs, *scales;
};
TB_DEVICE UnitPlanes planes_of(const Product& p, uint32_t unit, uint32_t odd) {
  const uint8_t *signs = p.matrix[0].signs, *scales = p.matrix[0].scales;
  if (is_gated(p.fuse)) {
    signs = odd ? p.matrix[1].signs : signs;
    scales = odd ? p.matrix[1].scales : scales;
  } else if (p.n_matrices > 1) {
    // Selected, not looked up, so that they are in scalar registers.
    uint32_t place = unit;
    TB_UNROLL
    for (uint32_t i = 1; i < kMatrices; ++i) {
      const uint32_t first = p.matrix[i].first_unit;
      const uint8_t *const other_signs = p.matrix[i].signs, *const other_scales = p.matrix[i].scales;
      signs = unit >= first ? other_signs : signs;
      scales = unit >= first ? other_scales : scales;
      place = unit >= first ? unit - first : place;
    }
    unit = place;
  }
  const uint64_t words = uint64_t{unit} * (p.n_groups * kUnit);
  return {signs + words * 16, scales + words * 2};
}

TB_DEVICE uint32_t last_live(uint32_t row, uint32_t n_live) { return min_of(row, n_live ? n_live - 1 : 0); }
/// n_live counts with x_rows alone, whose entries beyond the live rows may be anything.
TB_DEVICE uint32_t row_of_x(const Product& p, uint32_t row, uint32_t n_live) {
  return p.x_rows ? static_cast<uint32_t>(p.x_rows[last_live(row, n_live)]) : min_of(row, p.max_rows - 1);
}
/// What row_of_x needs: else the address of the input would wait for it.
TB_DEVICE uint32_t live_for_x(const Product& p) { return p.x_rows ? *p.n_rows : 0; }

/// What the end of an output needs from memory, asked for while the dots run: by lane, of a unit's output.
struct Early {
  float residual, norm;
};
TB_DEVICE Early early_of(const Product& p, UnitPlace at, uint32_t row) {
  const uint32_t o = at.unit * kUnit + lane();
  Early early = {0.f, 1.f};
  if (row >= p.max_rows || o >= p.matrix[at.matrix].rows) return early;
  if (p.fuse == fuse_add) early.residual = p.residual[row * p.residual_stride + o];
  if (p.out_norm && at.matrix == 0) early.norm = p.out_norm[o];
  return early;
}

/// y = product, then bias and fusion, by lane of the unit's output o, which may be none; `up` counts for gates only.
TB_DEVICE float outcome_of(const Product& p, const Matrix& matrix, uint32_t o, bool there, float y, float up, const Early& early) {
  if (matrix.bias) y += matrix.bias[there ? o : 0];
  if (p.fuse == fuse_add) y = early.residual + y;
  if (is_gated(p.fuse)) {
    if (p.matrix[1].bias) up += p.matrix[1].bias[there ? o : 0];
    y = p.fuse == fuse_silu ? silu_mul(y, up) : gelu_mul(y, up);
  }
  return y;
}
/// A wave finishes the 32 outputs of a unit for one row, a lane one of them: the outcome, and its bytes.
template <class Io>
TB_DEVICE void finish(const Product& p, UnitPlace at, uint32_t row, float y, float up, Early early, const Io& io) {
  const Matrix& matrix = p.matrix[at.matrix];
  const uint32_t o = at.unit * kUnit + lane();
  const bool there = o < matrix.rows;
  y = outcome_of(p, matrix, o, there, y, up, early);
  if (there) io.floats(p, at, row, o, y);
  if (p.out_q8.codes && at.matrix == 0) io.bytes(p, at, row, y, early.norm);
}

/// Groups [begin, begin + n) of R rows from first_row to shared memory, by one wave.
template <uint32_t R>
TB_DEVICE void fetch_groups(const Product& p, uint32_t first_row, uint32_t n_live, uint32_t begin, uint32_t n, uint8_t* shared) {
  constexpr uint32_t kPieces = kSharedGroupBytes / 16, kCodes = kGroup / 16, kBatch = 2;  // loads in flight
  const uint32_t n_pieces = R * n * kPieces;
  TB_NO_UNROLL
  for (uint32_t first = lane(); first - lane() < n_pieces; first += kBatch * kWave) {
    Words4 words[kBatch];
    uint32_t to[kBatch];
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t i = min_of(first + k * kWave, n_pieces - 1);  // the last again rather than none
      const uint32_t one = i / kPieces, part = i % kPieces, r = R == 1 ? 0 : one / n, g = begin + (R == 1 ? one : one % n);
      const uint64_t from = uint64_t{row_of_x(p, first_row + r, n_live)} * p.n_groups + g;
      words[k] = load_words(part < kCodes ? static_cast<const void*>(p.codes + from * kGroup + part * 16)
                                          : static_cast<const void*>(p.scales + from * kGroupTiles + (part - kCodes) * 2));
      to[k] = (r * p.n_groups + g) * kSharedGroupBytes + part * 16;
    }
    TB_UNROLL
    for (uint32_t k = 0; k < kBatch; ++k) store_words(shared + to[k], words[k]);
  }
}

/// Input from what earlier kernels wrote, outputs to memory.
struct MemoryIo {
  TB_DEVICE uint32_t wait(const Product& p) const {
    wait_for_previous();
    return live_for_x(p);
  }
  template <uint32_t R>
  TB_DEVICE void fetch(const Product& p, uint32_t first_row, uint32_t n_live, uint32_t begin, uint32_t n, uint8_t* shared) const {
    fetch_groups<R>(p, first_row, n_live, begin, n, shared);
  }
  TB_DEVICE float squares(const Product& p, uint32_t row, uint32_t n_live, uint32_t n_tiles) const {
    return q8_part(p.squares + uint64_t{row_of_x(p, row, n_live)} * n_tiles, n_tiles);
  }
  TB_DEVICE void floats(const Product& p, UnitPlace at, uint32_t row, uint32_t o, float y) const {
    p.matrix[at.matrix].out[row * p.matrix[at.matrix].out_stride + o] = y;
  }
  TB_DEVICE void bytes(const Product& p, UnitPlace at, uint32_t row, float y, float weight) const {
    write_q8_tile(p.out_q8, row, at.unit, y, weight);
  }
  TB_DEVICE void moment(uint32_t) const {}
};

/// Whether there are registers for the ends of outputs to take a gate and its up side by side, and longer batches of sums.
#if defined(TB_AMD)
template <uint32_t R>
constexpr bool kWideEnds = false;
#else
template <uint32_t R>
constexpr bool kWideEnds = R < 4;
#endif
template <uint32_t N>
struct Number { static constexpr uint32_t value = N; };

/// What a block does of a product: units block, block + n_blocks, ..; with one or two teams of team_waves(n_groups) waves.
/// Further waves make the factors of norms and help at the ends of outputs.
struct BlockShare {
  uint32_t block, n_blocks, n_teams;
  MatvecShape shape;
};

/// Rows [first_row, first_row + R) of the block's share; `shared` holds matvec_shared_bytes.
///
/// Units are dealt over the blocks one by one. A unit has one part, gated two; parts are dealt over the teams. An item is one
/// step (a group of each segment) of one part, of which a lane takes an output of each of the unit's two tiles. The words of
/// a team's next kHeld items are always on their way, whether they are steps of one part or many parts. Rounds of kItems
/// items end with the outputs of the parts that are complete, while waves that have none of these go on.
template <uint32_t R, uint32_t kHeld, class Io>
TB_DEVICE void matvec(const Product& p, BlockShare share, uint32_t first_row, uint8_t* shared, const Io& io) {
  constexpr uint32_t kItems = items_of(R);
  static_assert(kItems % kHeld == 0);
  const uint32_t n_groups = p.n_groups, length = share.shape.length, per_team = share.shape.per_team, stride = (2 * per_team + 1) * kTile;
  const uint32_t block = share.block, n_blocks = share.n_blocks, n_teams = share.n_teams, n_waves = threads() / kWave;
  const uint32_t team = wave() >= per_team ? 1 : 0, team_wave = wave() - team * per_team;
  const bool in_team = wave() < n_teams * per_team;
  const uint32_t half = lane() / kTile, row = lane() % kTile, segment = 2 * team_wave + half;
  const uint32_t ring = n_teams * kItems * kSumRounds;  // a power of two
  float* const sums = reinterpret_cast<float*>(shared + R * n_groups * kSharedGroupBytes);
  float* const gates = sums + R * ring * 2 * stride;  // [2][R][kUnit]: of gates whose up comes in a later round
  float* const factors = gates + 2 * R * kUnit;
  const bool gated = is_gated(p.fuse);

  const uint32_t my_units = share.shape.units_each + (block < share.shape.units_more ? 1 : 0);
  const uint32_t n_parts = gated ? 2 * my_units : my_units, n_items = (n_teams == 1 ? n_parts : (n_parts + 1) / 2) * length;
  const auto unit_of = [&](uint32_t part) { return block + n_blocks * (gated ? part / 2 : part); };

  Words4 words[kHeld][2];
  uint16_t weight_scale[kHeld][2];
  const uint32_t tile_words = n_groups * kTile, first_group = min_of(segment * length, n_groups - 1);
  const Words4* sign_at = nullptr;
  const uint16_t* scale_at = nullptr;
  const uint32_t first_part = in_team ? team : n_parts;
  uint32_t coming_part = first_part, coming_step = 0;  // of the next item to load
  const auto seek = [&] {
    if (coming_part >= n_parts) return;
    const UnitPlanes at = planes_of(p, unit_of(coming_part), coming_part & 1);
    sign_at = reinterpret_cast<const Words4*>(at.signs) + (first_group * kTile + row);
    scale_at = reinterpret_cast<const uint16_t*>(at.scales) + (first_group * kTile + row);
  };
  const auto load = [&](uint32_t k) {
    if (coming_part >= n_parts) return;
    words[k][0] = load_stream(sign_at);
    words[k][1] = load_stream(sign_at + tile_words);
    weight_scale[k][0] = load_stream(scale_at);
    weight_scale[k][1] = load_stream(scale_at + tile_words);
    if (++coming_step == length) {
      coming_step = 0;
      coming_part += n_teams;
      seek();
    } else {
      const uint32_t on = first_group + coming_step < n_groups ? kTile : 0;  // a group again rather than none
      sign_at += on;
      scale_at += on;
    }
  };
  seek();
  TB_UNROLL
  for (uint32_t k = 0; k < kHeld; ++k) {
    words[k][0] = words[k][1] = {0, 0, 0, 0};
    weight_scale[k][0] = weight_scale[k][1] = 0;
    load(k);
  }

  const uint32_t n_live = io.wait(p);
  const uint32_t n_rows = first_row ? *p.n_rows : 1;  // blocks of the first rows need not know
  // A wave fetches what it will read itself; two teams share the work.
  if (in_team) {
    const uint32_t begin = min_of(2 * team_wave * length, n_groups), end = min_of(begin + 2 * length, n_groups);
    const uint32_t middle = n_teams == 1 ? end : min_of(begin + length, end), own = team ? middle : begin, own_end = team ? end : middle;
    io.template fetch<R>(p, first_row, n_live, own, own_end - own, shared);
  }
  if (first_row >= n_rows) return;  // not before the row's bytes are asked for: they would wait
  const uint32_t n_tiles = in_lanes(n_groups * kGroupTiles);
  const uint32_t factor_row = R == 4 ? wave() : n_waves - 1 - wave();  // the last waves make the factors: they have the least to do
  float squares = 0;
  if (p.squares && factor_row < R) squares = io.squares(p, first_row + factor_row, n_live, n_tiles);
  if (n_teams == 1) sync_wave();
  else sync_block();
  io.moment(1);

  // Finished sums of N parts side by side; a half wave without a segment has left a zero.
  const auto totals = [&](auto& f, const uint32_t (&parts)[2], uint32_t r) {
    constexpr uint32_t N = sizeof f / sizeof f[0];
    const float* from[N];
    TB_UNROLL
    for (uint32_t i = 0; i < N; ++i) {
      from[i] = sums + (((parts[i] & (ring - 1)) * 2 + half) * R + r) * stride + row;
      f[i] = 0;
    }
    uint32_t left = 2 * per_team;
    const auto add = [&](auto batch) {
      constexpr uint32_t kBatch = decltype(batch)::value;
      TB_NO_UNROLL
      for (; left >= kBatch; left -= kBatch) {
        float s[N][kBatch];
        TB_UNROLL
        for (uint32_t k = 0; k < kBatch; ++k)
          TB_UNROLL
          for (uint32_t i = 0; i < N; ++i) s[i][k] = from[i][k * kTile];
        TB_UNROLL
        for (uint32_t k = 0; k < kBatch; ++k)
          TB_UNROLL
          for (uint32_t i = 0; i < N; ++i) f[i] += s[i][k];
        TB_UNROLL
        for (uint32_t i = 0; i < N; ++i) from[i] += kBatch * kTile;
      }
    };
    add(Number<kWideEnds<R> ? 16 / N : 8>{});
    add(Number<kWideEnds<R> ? 2 : 1>{});
    if (p.squares) {
      TB_UNROLL
      for (uint32_t i = 0; i < N; ++i) f[i] *= factors[r];
    }
  };
  // A job is one row of one part that this round completed, dealt over the waves, each round from where the last one ended.
  const auto early_at = [&](uint32_t part, uint32_t r) { return early_of(p, place_of(p, unit_of(part), 0), first_row + r); };

  float acc[2][R];
  uint32_t part = first_part, step = 0;  // of the item in work
  uint32_t done = 0, steps = in_lanes(0);  // parts of all teams that are complete, steps begun since; the same in all waves
  uint32_t turn = wave();                  // the wave's first job
  TB_NO_UNROLL
  for (uint32_t base = 0; base < n_items; base += kItems) {
    const uint32_t first_done = done;
    uint32_t n_done = 0;
    for (steps += kItems; steps >= length; steps -= length) n_done += n_teams;
    n_done = min_of(n_done, n_parts - first_done);
    const uint32_t n_jobs = n_done * R;
    Early early = {0.f, 1.f};  // of the wave's first job: on its way while the dots run
    if (turn < n_jobs) early = early_at(first_done + turn / R, turn % R);
    TB_NO_UNROLL
    for (uint32_t held = 0; held < kItems; held += kHeld)
    TB_UNROLL
    for (uint32_t k = 0; k < kHeld; ++k) {
      if (part >= n_parts) continue;
      const uint32_t wanted = segment * length + step, group = min_of(wanted, n_groups - 1);
      const bool in_row = wanted < n_groups;
      if (step == 0) {
        TB_UNROLL
        for (uint32_t r = 0; r < R; ++r) acc[0][r] = acc[1][r] = 0;
      }
      const float d[2] = {half_to_float(weight_scale[k][0]), half_to_float(weight_scale[k][1])};
      float inner[2][R];
      const uint8_t* const bytes = shared + group * kSharedGroupBytes;
      if constexpr (kHeld == 1 || !kWideEnds<R>) {
        const Words4 now[2] = {words[k][0], words[k][1]};
        load(k);
        group_inner<R, 2>(now, bytes, n_groups * kSharedGroupBytes, inner);
      } else {  // others are on their way: words beside those in work would only cost registers, and moves between them
        group_inner<R, 2>(words[k], bytes, n_groups * kSharedGroupBytes, inner);
        load(k);
      }
      TB_UNROLL
      for (uint32_t r = 0; r < R; ++r) {
        TB_UNROLL
        for (uint32_t t = 0; t < 2; ++t) {
          const float next = fmadd(d[t], inner[t][r], acc[t][r]);
          acc[t][r] = in_row ? next : acc[t][r];
        }
      }
      if (++step == length) {
        float* const to = sums + (part & (ring - 1)) * (2 * R * stride) + segment * kTile + row;
        TB_UNROLL
        for (uint32_t t = 0; t < 2; ++t) {
          TB_UNROLL
          for (uint32_t r = 0; r < R; ++r) to[(t * R + r) * stride] = acc[t][r];
        }
        step = 0;
        part += n_teams;
      }
    }
    if (p.squares && base == 0)
      for (uint32_t r = factor_row; r < R; r += n_waves) {
        if (r != factor_row) squares = io.squares(p, first_row + r, n_live, n_tiles);
        const float factor = q8_factor(squares, n_tiles, p.eps);
        if (lane() == 0) factors[r] = factor;
      }
    if (n_jobs == 0) continue;
    done += n_done;
    sync_block();
    if (first_done == 0) io.moment(2);
    uint32_t job = turn;
    for (; job < n_jobs; job += n_waves) {
      const uint32_t of = first_done + job / R, r = job % R;
      if (first_row + r >= p.max_rows) continue;
      float* const gate = gates + ((of / 2 & 1) * R + r) * kUnit + lane();
      float y[1], up = 0;
      if (kWideEnds<R> && gated && (of & 1) != 0 && of != first_done) {
        float both[2];
        totals(both, {of - 1, of}, r);
        y[0] = both[0];
        up = both[1];
      } else {
        if (gated && (of & 1) == 0 && of + 1 != done) continue;  // its up will do both
        totals(y, {of, of}, r);
        if (gated && (of & 1) == 0) {
          *gate = y[0];
          continue;
        }
        if (gated) {
          up = y[0];
          if (!kWideEnds<R> && of != first_done) totals(y, {of - 1, of - 1}, r);
          else y[0] = *gate;
        }
      }
      if (job != turn) early = early_at(of, r);
      finish(p, place_of(p, unit_of(of), 0), first_row + r, y[0], up, early, io);
    }
    turn = job - n_jobs;
  }
}

/// One row of floats to bytes, by the whole block.
TB_DEVICE void prepare_row(const Prepare& p, uint32_t row) {
  const float* const x = p.x + (p.x_rows ? static_cast<uint32_t>(p.x_rows[row]) : row) * p.x_stride;
  for (uint32_t tile = wave(); tile < p.q8.n_tiles; tile += threads() / kWave) {
    const uint32_t column = tile * kQ8Tile + lane();
    write_q8_tile(p.q8, row, tile, x[column], p.norm ? p.norm[column] : 1.f);
  }
}

}  // namespace turbo::gpu::q1
