// Attention as a stage among others: rows come as mail, and the output goes as mail.
#pragma once

#include <turbo/kernel/gpu/attend.hpp>
#include <turbo/kernel/gpu/mail.hpp>

namespace turbo::gpu {

struct MailRows {
  static constexpr bool kLate = true;
  const StageMail& mail;
  const Post& post;
  const bool keeps_floats, keeps_bytes;
  uint64_t* const moments;

  TB_DEVICE void wait() const {}
  template <uint32_t P>
  TB_DEVICE void row(const AttendArgs& args, uint32_t side, uint32_t row, uint32_t head, float (&x)[P]) const {
    const uint32_t d = args.a.k.head_dim;
    const uint8_t* const from = mail.floats[side] + uint64_t{row} * mail.float_stride[side] + uint64_t{head} * d * kMailFloat;
    await_floats<kFloatTag>(post, [&](uint32_t p) { return from + min_of(p * kWave + lane(), d - 1) * kMailFloat; }, x);
    if (moments && thread() == 0) moments[1] = clock_now();
  }
  TB_DEVICE void output(const AttendArgs& args, uint32_t row, uint32_t head, uint32_t d, uint32_t e, float x) const {
    const uint64_t column = uint64_t{head} * d + e;
    if (moments && thread() == 0) moments[2] = clock_now();
    if (keeps_floats) args.a.out[row * args.a.out_stride + column] = x;
    if (keeps_bytes) write_q8_tile(args.out_q8, row, static_cast<uint32_t>(column / kQ8Tile), x, 1.f);
    if (mail.out) send_q8_tile(post, mail.out + uint64_t{row} * mail.out_stride, static_cast<uint32_t>(column / kQ8Tile), x, 1.f);
  }
};

}  // namespace turbo::gpu
