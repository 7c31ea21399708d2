// Products as stages among others: see mail_layout.hpp.
#pragma once

#include <turbo/kernel/gpu/mail.hpp>
#include <turbo/kernel/gpu/matvec.hpp>

namespace turbo::gpu::q1 {

/// Products of a stage: mail where the stage has it, memory else.
/// Dead rows are sent by nobody, so a live one stands for them.
struct StageIo {
  const StageMail& mail;
  const Post& post;
  const bool keeps_floats, keeps_bytes;
  const uint32_t n_live;
  uint64_t* const moments;  // of the stage and block, or null

  TB_DEVICE void moment(uint32_t n) const {
    if (moments && thread() == 0) moments[n] = clock_now();
  }

  TB_DEVICE uint32_t wait(const Product&) const { return n_live; }

  template <uint32_t R>
  TB_DEVICE void fetch(const Product& p, uint32_t first_row, uint32_t n_live, uint32_t begin, uint32_t n, uint8_t* shared) const {
    if (!mail.in) return fetch_groups<R>(p, first_row, n_live, begin, n, shared);
    constexpr uint32_t kPieces = kGroupTiles * kMailLanes, kBatch = 2;
    const uint32_t n_pieces = R * n * kPieces;
    TB_NO_UNROLL
    for (uint32_t first = lane(); first - lane() < n_pieces; first += kBatch * kWave) {
      const uint8_t* from[kBatch];
      uint8_t* to[kBatch];
      TB_UNROLL
      for (uint32_t k = 0; k < kBatch; ++k) {
        const uint32_t i = min_of(first + k * kWave, n_pieces - 1);  // the last again rather than none
        const uint32_t one = i / kPieces, r = R == 1 ? 0 : one / n, g = begin + (R == 1 ? one : one % n);
        from[k] = mail.in + uint64_t{row_of_x(p, last_live(first_row + r, n_live), n_live)} * mail.in_stride + (g * kGroupTiles) * kMailTile + i % kPieces * 16;
        to[k] = shared + (r * p.n_groups + g) * kSharedGroupBytes;
      }
      Words4 w[kBatch];
      await_mail(post, [&](uint32_t k) { return from[k]; }, w);
      TB_UNROLL
      for (uint32_t k = 0; k < kBatch; ++k) {
        const uint32_t i = min_of(first + k * kWave, n_pieces - 1) % kPieces, tile = i / kMailLanes, part = i % kMailLanes;
        const uint32_t c = (w[k].y & 0xffffu) | w[k].w << 16;
        uint8_t* const codes = to[k] + tile * kQ8Tile + part * 12;
        uint8_t* const scale = to[k] + kGroup + tile * sizeof(Q8Scale);
        *reinterpret_cast<uint32_t*>(part < 3 ? codes : scale + 4) = w[k].x;
        if (part < 3) {
          *reinterpret_cast<uint32_t*>(codes + 4) = w[k].z;
          *reinterpret_cast<uint32_t*>(part < 2 ? codes + 8 : scale) = c;
        }
      }
    }
  }

  TB_DEVICE float squares(const Product& p, uint32_t row, uint32_t n_live, uint32_t n_tiles) const {
    const uint32_t of = row_of_x(p, last_live(row, n_live), n_live);
    if (!mail.in) return q8_part(p.squares + uint64_t{of} * n_tiles, n_tiles);
    const uint8_t* const tiles = mail.in + uint64_t{of} * mail.in_stride + kMailSquares;
    constexpr uint32_t kBatch = 4;
    float part = 0;
    for (uint32_t begin = 0; begin < n_tiles; begin += kBatch * kWave) {
      float s[kBatch];
      const auto tile_of = [&](uint32_t k) { return begin + k * kWave + lane(); };
      await_floats<kSquaresTag>(post, [&](uint32_t k) { return tiles + min_of(tile_of(k), n_tiles - 1) * kMailTile; }, s);
      TB_UNROLL
      for (uint32_t k = 0; k < kBatch; ++k) part += tile_of(k) < n_tiles ? s[k] : 0.f;
    }
    return part;
  }

  TB_DEVICE void floats(const Product& p, UnitPlace at, uint32_t row, uint32_t o, float y) const {
    uint8_t* const to = mail.floats[at.matrix];
    if (to) send_float(post, to + uint64_t{row} * mail.float_stride[at.matrix], o, y);
    if (keeps_floats) p.matrix[at.matrix].out[row * p.matrix[at.matrix].out_stride + o] = y;
  }
  TB_DEVICE void bytes(const Product& p, UnitPlace at, uint32_t row, float y, float weight) const {
    if (mail.out) send_q8_tile(post, mail.out + uint64_t{row} * mail.out_stride, at.unit, y, weight);
    if (keeps_bytes) write_q8_tile(p.out_q8, row, at.unit, y, weight);
  }
};

}  // namespace turbo::gpu::q1
