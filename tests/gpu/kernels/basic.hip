// Small kernels that use every part of the kernel language: the interpreter runs them, and so does the fiber platform.
#include "basic.h"

#include <turbo/kernel/gpu/device.hpp>

using namespace turbo::gpu;

TB_KERNEL(vector_add, AddArgs, 256) {
  const uint32_t i = block_x() * threads() + thread();
  if (i < args.n) args.out[i] = args.a[i] + args.b[i];
}

// One row a block: wave sums of the row's first threads, and the block's sum.
TB_KERNEL(sums, RowArgs, 256) {
  using Slots = float[8];
  TB_SHARED(Slots, slots);
  const uint32_t i = thread();
  const float v = i < args.cols ? args.x[block_x() * args.cols + i] : 0.0f;
  const float wave_total = wave_sum(v), highest = wave_max(v);
  const int32_t whole = wave_sum(static_cast<int32_t>(v));
  const uint32_t positive = ballot(v > 0);
  const float total = block_sum(v, slots, threads() / 32);
  float* out = args.out + (block_x() * (threads() / 32) + wave()) * 5;
  if (lane() == 0) {
    out[0] = wave_total;
    out[1] = highest;
    out[2] = static_cast<float>(whole);
    out[3] = from_bits(positive);
    out[4] = total;
  }
}

TB_KERNEL(rms_norm_row, NormArgs, 256) {
  using Slots = float[8];
  TB_SHARED(Slots, slots);
  const float* x = args.x + uint64_t{block_x()} * args.cols;
  float* out = args.out + uint64_t{block_x()} * args.cols;
  float sum = 0;
  for (uint32_t i = thread(); i < args.cols; i += 256) sum = fmadd(x[i], x[i], sum);
  const float r = 1.0f / sqrtf(block_sum(sum, slots, 8) / static_cast<float>(args.cols) + args.eps);
  for (uint32_t i = thread(); i < args.cols; i += 256) out[i] = x[i] * r * args.weight[i];
}

// out[row] = sum over groups of 128: weight scale * activation scale * sum(+-q). A wave a row, four values a lane and group.
TB_KERNEL(matvec_1bit, MatvecArgs, 128) {
  const uint32_t row = block_x() * 4 + wave();
  const bool live = row < args.rows;
  const uint32_t groups = args.cols / 128, safe = live ? row : args.rows - 1;
  float acc = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    const uint64_t at = uint64_t{safe} * groups + g;
    const uint32_t nibble = args.bits[at * 4 + lane() / 8] >> (lane() % 8 * 4) & 15;
    const uint32_t ones = nibble * 0x00204081u & 0x01010101u;
    const uint32_t q = args.q[g * 32 + lane()];
    const int32_t t = wave_sum(2 * dot4(ones, q, 0) - dot4(0x01010101u, q, 0));
    acc = fmadd(half_to_float(args.scales[at]) * args.q_scales[g], static_cast<float>(t), acc);
  }
  if (live && lane() == 0) args.out[row] = acc;
}

TB_KERNEL(convert, ConvertArgs, 256) {
  const uint32_t i = block_x() * 256 + thread();
  args.floats_out[i] = half_to_float(args.halves_in[i]);
  args.halves_out[i] = float_to_half(args.floats_in[i]);
}

TB_KERNEL(softmax_row, RowArgs, 256) {
  TB_DYNAMIC_SHARED(float, kept);
  using Slots = float[8];
  TB_SHARED(Slots, slots);
  const float* x = args.x + block_x() * args.cols;
  float highest = from_bits(0xff800000u), sum = 0;
  for (uint32_t i = thread(); i < args.cols; i += threads()) highest = max_of(highest, x[i]);
  highest = wave_max(highest);
  if (lane() == 0) slots[wave()] = highest;
  sync_block();
  for (uint32_t w = 0; w < threads() / 32; ++w) highest = max_of(highest, slots[w]);
  sync_block();
  for (uint32_t i = thread(); i < args.cols; i += threads()) sum += kept[i] = expf(x[i] - highest);
  sum = block_sum(sum, slots, threads() / 32);
  for (uint32_t i = thread(); i < args.cols; i += threads()) args.out[block_x() * args.cols + i] = kept[i] / sum;
}

TB_KERNEL(rotate, RotateArgs, 256) {
  const uint32_t i = block_x() * 256 + thread();
  if (i >= args.n) return;
  const float angle = static_cast<float>(args.position[i]) * args.frequency[i];
  args.out[2 * i] = cosf(angle);
  args.out[2 * i + 1] = sinf(angle);
}

// All blocks wait for each other: each adds itself, the last one opens the gate.
TB_KERNEL(meet_all, MeetArgs, 64) {
  using Ticket = uint32_t;
  TB_SHARED(Ticket, ticket);
  if (thread() == 0) {
    atomic_max(args.highest, uint64_t{block_x()} * 0x100000001ull);
    atomic_or(args.seen, 1u << block_x());
    fence_device();
    ticket = atomic_add(args.arrived, 1);
    while (load_shared_word(args.arrived) < grid_x()) turbo::gpu::pause();
    fence_device();
  }
  sync_block();
  if (thread() == 0) {
    args.out[block_x() * 2] = ticket;
    args.out[block_x() * 2 + 1] = load_shared_word(args.seen);
  }
}

// Rows of a struct inside the argument struct, one of which may be missing.
TB_KERNEL(nested, NestedArgs, 32) {
  const float add = args.second.x ? args.second.x[thread()] * args.second.factor : 0.5f;
  args.out[thread()] = args.first.x[thread()] * args.first.factor + add;
}
