// One step of attention with everything in plain arrays: what the benchmark runs on a device and the reference as fibers.
#pragma once

#include <turbo/kernel/gpu/kv_side.hpp>
#include <turbo/kernel/rotated_kv/codebooks.hpp>
#include <turbo/kernel/rotated_kv/rotation.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace attend_bench {

using turbo::gpu::AttendArgs;
using turbo::gpu::KvSide;
constexpr uint32_t kDim = 128, kUnits = 132;

struct Step {
  std::string codec;  // f16, q4, rotated4
  uint32_t kv_heads, group, depth, rows, seed = 1;
  uint32_t blocks = 0, max_chunks = 0, queries = 0;
  uint64_t stride = 0, open_stride = 0;
  std::vector<uint8_t> k, v, open_k, open_v;
  std::vector<float> q, k_rows, v_rows, norm, frequencies, tables[2];
  std::vector<uint32_t> level8;
  std::vector<int32_t> ints;
  std::vector<uint32_t> counts;
  KvSide side[2] = {};
  std::unique_ptr<turbo::rotated_kv::RotationTables> rotation[2];

  uint32_t next() { return seed = seed * 1664525u + 1013904223u, seed >> 8; }
  void noise(std::vector<float>& to, size_t n) {
    to.resize(n);
    for (float& x : to) x = static_cast<float>(static_cast<int>(next() & 0xffff) - 32768) / 16384.0f;
  }
  // Sixteen bits that are a half of 0.125 to 0.25, or four codes.
  void fill(std::vector<uint8_t>& to, size_t n) {
    to.resize(n);
    for (size_t i = 0; i + 1 < n; i += 2) {
      const uint16_t half = static_cast<uint16_t>((next() & 0x83ffu) | 0x3000u);
      std::memcpy(&to[i], &half, 2);
    }
  }

  Step(std::string name, uint32_t kv_heads, uint32_t group, uint32_t depth, uint32_t rows)
      : codec(std::move(name)), kv_heads(kv_heads), group(group), depth(depth), rows(rows) {
    const uint32_t keys = depth + rows;
    blocks = (keys + 63) / 64;
    max_chunks = (keys + 255) / 256;
    for (queries = first_queries(); queries < 8 && queries < group * rows && tiles() * max_chunks > 2 * kUnits * (max_chunks > 1 && queries > 1 ? 2 : 1);) queries *= 2;
    for (uint32_t s : {0u, 1u}) describe(s);
    stride = side[0].head_bytes * kv_heads;
    open_stride = side[0].open_head_bytes * kv_heads;
    fill(k, stride * blocks);
    fill(v, stride * blocks);
    fill(open_k, open_stride * blocks);
    fill(open_v, open_stride * blocks);
    noise(q, uint64_t{rows} * kv_heads * group * kDim);
    noise(k_rows, uint64_t{rows} * kv_heads * kDim);
    noise(v_rows, uint64_t{rows} * kv_heads * kDim);
    noise(norm, kDim);
    for (uint32_t i = 0; i < kDim / 2; ++i) frequencies.push_back(static_cast<float>(std::pow(1e6, -2.0 * i / kDim)));
    // position, row_seq, slot, path_length [rows]; path [rows]; committed; block table; open table
    for (uint32_t r = 0; r < rows; ++r) ints.push_back(static_cast<int32_t>(depth + r));
    ints.resize(2 * rows, 0);
    for (uint32_t r = 0; r < rows; ++r) ints.push_back(static_cast<int32_t>(depth + r));
    ints.resize(5 * rows, 0);
    ints.push_back(static_cast<int32_t>(depth));
    for (int table = 0; table < 2; ++table)
      for (uint32_t b = 0; b < blocks; ++b) ints.push_back(static_cast<int32_t>(blocks - 1 - b));
    counts = {rows, 1, 0, 0};
  }

  void describe(uint32_t which) {
    KvSide& s = side[which];
    s.scale_bytes = 2;
    if (codec == "f16" || codec == "nothing") {
      s.pitch = 2 * kDim;
      s.head_bytes = 64ull * s.pitch;
      return;
    }
    s.pitch = kDim / 2;
    s.scales_at = 64 * s.pitch;
    s.rotated = 1;
    if (codec == "q4") s.n_scales = kDim / 32;
    else s.n_scales = 1, s.open_pitch = 2 * kDim, s.open_head_bytes = 64ull * s.open_pitch;
    s.head_bytes = s.scales_at + 128ull * s.n_scales;
    rotation[which] = std::make_unique<turbo::rotated_kv::RotationTables>(
        turbo::rotated_kv::RotationSpec{turbo::rotated_kv::Turn::signs, true, false, false, 42}, which, kDim);
    const turbo::rotated_kv::Rotation& r = rotation[which]->rotation();
    s.turn = 0;
    s.seed = r.seed;
    s.block = r.block;
    s.factor = r.factor;
    const turbo::rotated_kv::Codebook book = turbo::rotated_kv::make_codebook(kDim, 4);
    tables[which].assign(r.first, r.first + kDim);
    tables[which].insert(tables[which].end(), book.level, book.level + 16);
    level8.resize(4);
    std::memcpy(level8.data(), book.level8, 16);
    s.level8_unit = book.level8_unit;
  }

  /// Blocks that share the chunks of a tile, and above the width of tiles, as the host half of the codecs chooses for a device of kUnits units.
  uint32_t chunk_blocks() const { return std::min(max_chunks, std::max(1u, 2 * kUnits / tiles())); }
  static uint32_t first_queries() {
    const char* const wanted = std::getenv("ATTEND_QUERIES");
    return wanted ? static_cast<uint32_t>(std::atoi(wanted)) : 1;
  }
  uint32_t tiles() const {
    const uint32_t tile_heads = std::min(group, queries), tile_rows = queries / tile_heads;
    return kv_heads * ((group + tile_heads - 1) / tile_heads) * ((rows + tile_rows - 1) / tile_rows);
  }
  uint64_t bytes_read() const { return 2 * (stride * (depth / 64)); }
  uint64_t partial_floats() const { return uint64_t{rows} * kv_heads * group * max_chunks * (kDim + 4); }

  /// Arguments over arrays that `place` has put somewhere: place(vector) gives the address there.
  template <class Place>
  AttendArgs args(Place place, float* out, float* partials, uint32_t* counters) {
    AttendArgs g = {};
    turbo_device_attend& a = g.a;
    a.max_rows = rows;
    const int32_t* i = place(ints);
    a.table.counts = place(counts);
    a.table.position = i;
    a.table.row_seq = i + rows;
    a.table.slot = i + 2 * rows;
    a.table.path_length = i + 3 * rows;
    a.table.path = i + 4 * rows;
    a.table.committed = i + 5 * rows;
    a.table.block_table = i + 5 * rows + 1;
    a.table.open_table = i + 5 * rows + 1 + blocks;
    a.table.path_capacity = 1;
    a.table.block_capacity = blocks;
    for (turbo_device_kv* kv : {&a.k, &a.v}) {
      kv->stride = stride;
      kv->open_stride = open_stride;
      kv->n_kv_heads = kv_heads;
      kv->head_dim = kDim;
      kv->sinks = codec == "rotated4" ? 4 : 0;
    }
    a.k.base = const_cast<uint8_t*>(place(k));
    a.v.base = const_cast<uint8_t*>(place(v));
    if (open_stride) {
      a.k.open_base = const_cast<uint8_t*>(place(open_k));
      a.v.open_base = const_cast<uint8_t*>(place(open_v));
    }
    a.n_heads = kv_heads * group;
    a.max_chunks = max_chunks;
    a.scale = 0.08838834764f;
    a.same_sequence = 1;
    a.q = place(q);
    a.k_rows = place(k_rows);
    a.v_rows = place(v_rows);
    a.q_stride = a.out_stride = uint64_t{a.n_heads} * kDim;
    a.k_stride = a.v_stride = uint64_t{kv_heads} * kDim;
    a.q_norm = a.k_norm = place(norm);
    a.eps = 1e-6f;
    a.rope_dims = kDim;
    a.rope_style = 0;
    a.rope_magnitude = 1.0f;
    a.rope_frequencies = place(frequencies);
    a.out = out;
    g.k = side[0];
    g.v = side[1];
    for (uint32_t s : {0u, 1u}) {
      if (codec == "f16" || codec == "nothing") continue;
      KvSide& to = s ? g.v : g.k;
      to.first = place(tables[s]);
      to.level = to.first + kDim;
      to.level8 = place(level8);
    }
    g.partials = partials;
    g.counters = counters;
    g.partial_stride = kDim + 4;
    g.group = group;
    g.tile_heads = group < queries ? group : queries;
    g.tile_rows = queries / g.tile_heads;
    g.head_tiles = (group + g.tile_heads - 1) / g.tile_heads;
    return g;
  }
};

/// Run the step's kernel as fibers; the arguments hold host addresses.
extern "C" void attend_reference(const char* codec, uint32_t queries, const AttendArgs* args);

}  // namespace attend_bench
