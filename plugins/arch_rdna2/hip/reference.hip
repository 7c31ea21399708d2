// A plain f32 weight format and a plain f32 KV codec of one form: for the pack's self-test, which must not depend on what
// it tests with.
#include <turbo/kernel/gpu/table.hpp>

#include "args.h"

using namespace turbo::gpu;
using namespace turbo::arch_rdna2;

// A wave for each output of a row.
TB_KERNEL(rdna2_plain_matmul, PlainMatmulArgs, 256) {
  const uint32_t row = block_y(), out = block_x() * (kThreads / kWave) + wave();
  if (row >= *args.n_rows || out >= args.n_out) return;
  const float *const x = args.x + row * args.x_stride, *const w = args.w + static_cast<uint64_t>(out) * args.cols;
  float sum = 0;
  for (uint32_t i = lane(); i < args.cols; i += kWave) sum = fmadd(x[i], w[i], sum);
  sum = wave_sum(sum);
  if (lane() == 0) args.out[row * args.out_stride + out] = sum;
}

TB_KERNEL(rdna2_plain_gather, PlainGatherArgs, 256) {
  const uint32_t row = block_y(), i = block_x() * kThreads + thread();
  if (row >= *args.n_rows || i >= args.cols) return;
  args.out[row * args.out_stride + i] = args.w[static_cast<uint64_t>(args.ids[row]) * args.cols + i];
}

// Blocks are [kv head][64][head_dim].
TB_KERNEL(rdna2_plain_append, PlainAppendArgs, 256) {
  const uint32_t row = block_y(), i = block_x() * kThreads + thread();
  if (row >= live_rows(args.table) || i >= args.kv.n_kv_heads * args.kv.head_dim) return;
  const uint32_t slot = static_cast<uint32_t>(args.table.slot[row]), head = i / args.kv.head_dim, e = i % args.kv.head_dim;
  float* const block = reinterpret_cast<float*>(const_cast<uint8_t*>(block_of(args.table, args.kv, static_cast<uint32_t>(args.table.row_seq[row]), slot, false)));
  block[(static_cast<uint64_t>(head) * TURBO_KV_BLOCK + slot % TURBO_KV_BLOCK) * args.kv.head_dim + e] = args.rows[row * args.stride + i];
}

TB_KERNEL(rdna2_plain_move, PlainMoveArgs, 256) {
  const uint32_t i = block_x() * kThreads + thread();
  if (i >= args.n_kv_heads * args.head_dim) return;
  const uint64_t head = i / args.head_dim * static_cast<uint64_t>(TURBO_KV_BLOCK), e = i % args.head_dim;
  args.target[(head + args.target_row) * args.head_dim + e] = args.source[(head + args.source_row) * args.head_dim + e];
}

TB_DEVICE const float* plain_row(const PlainAttendArgs& args, uint32_t row, uint32_t head, uint32_t position) {
  const uint32_t seq = static_cast<uint32_t>(args.table.row_seq[row]), slot = slot_of(args.table, row, seq, position);
  const float* const block = reinterpret_cast<const float*>(block_of(args.table, args.kv, seq, slot, false));
  const uint64_t kv_head = head / (args.n_heads / args.kv.n_kv_heads);
  return block + (kv_head * TURBO_KV_BLOCK + slot % TURBO_KV_BLOCK) * args.kv.head_dim;
}

// Block x is the chunk, y the head, z the row; a thread for each key.
TB_KERNEL(rdna2_plain_scores, PlainAttendArgs, 256) {
  const uint32_t row = block_z(), head = block_y(), at = row * args.n_heads + head;
  if (row >= live_rows(args.table)) return;
  const uint32_t column = block_x() * TURBO_DEVICE_CHUNK + thread(), position = args.chunk_begin * TURBO_DEVICE_CHUNK + column;
  if (position > static_cast<uint32_t>(args.table.position[row])) return;
  const float *const key = plain_row(args, row, head, position), *const q = args.q + row * args.q_stride + static_cast<uint64_t>(head) * args.kv.head_dim;
  float sum = 0;
  for (uint32_t e = 0; e < args.kv.head_dim; ++e) sum = fmadd(q[e], key[e], sum);
  args.out[static_cast<uint64_t>(at) * args.out_stride + column] = sum * args.scale;
}

// A thread for each element.
TB_KERNEL(rdna2_plain_values, PlainAttendArgs, 256) {
  const uint32_t row = block_z(), head = block_y(), at = row * args.n_heads + head;
  if (row >= live_rows(args.table)) return;
  const uint32_t begin = (args.chunk_begin + block_x()) * TURBO_DEVICE_CHUNK, n_keys = static_cast<uint32_t>(args.table.position[row]) + 1;
  const float* const weights = args.weights + static_cast<uint64_t>(at) * args.in_stride + block_x() * TURBO_DEVICE_CHUNK;
  for (uint32_t e = thread(); e < args.kv.head_dim; e += kThreads) {
    float sum = 0;
    for (uint32_t i = 0; i < TURBO_DEVICE_CHUNK && begin + i < n_keys; ++i) sum = fmadd(weights[i], plain_row(args, row, head, begin + i)[e], sum);
    args.out[(static_cast<uint64_t>(at) * args.n_chunks + block_x()) * args.out_stride + 2 + e] = sum;
  }
}
