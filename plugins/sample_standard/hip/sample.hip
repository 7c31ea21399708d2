// Kernels of the device sampler. Sums have one order whatever the grid; lists are sets, which the host puts in order.
#include "args.h"

#include <turbo/kernel/gpu/device.hpp>
#include <turbo/kernel/lanes.h>

using namespace turbo::gpu;
using namespace turbo::sample_standard::device;

namespace {

using Slots = uint64_t[kThreads / kWave];

TB_DEVICE float minus_infinity() { return from_bits(0xff800000u); }

struct Range {
  uint64_t begin, end;
};
TB_DEVICE Range range_of(uint32_t part, uint32_t length, uint32_t vocab) {
  const uint64_t first = uint64_t{part} * length, n = vocab;
  return {first < n ? first : n, first + length < n ? first + length : n};
}

/// First edit of the work whose token is not below `id`.
TB_DEVICE uint32_t edits_below(const Edit* edits, uint32_t n, uint64_t id) {
  uint32_t low = 0, high = n;
  while (low < high) {
    const uint32_t middle = (low + high) / 2;
    const bool below = edits[middle].id < id;
    low = below ? middle + 1 : low;
    high = below ? high : middle;
  }
  return low;
}

TB_DEVICE float edit_value(float value, const Edit& edit, const Work& work, const float* biases) {
  for (uint32_t i = 0; i < edit.n_bias; ++i) {
    const float bias = biases[edit.first_bias + i];
    value = bias <= kBan ? minus_infinity() : value + bias;
  }
  if (edit.seen & kSeen) {
    const uint32_t count = edit.seen & ~kSeen;
    value = value > 0 ? value / work.repetition : value * work.repetition;
    if (count > 0) value = (value - work.frequency * static_cast<float>(count)) - work.presence;
  }
  return value;
}

/// The block's range of an edited row: mask, then edits.
TB_DEVICE void write_edited(const SurveyArgs& a, const Work& work, const float* from, float* to, Range range) {
  for (uint64_t i = range.begin + thread(); i < range.end; i += threads()) {
    const bool allowed = work.first_word == kNone || (a.masks[work.first_word + i / 32] >> (i % 32) & 1);
    to[i] = allowed ? from[i] : minus_infinity();
  }
  sync_block();
  const Edit* const edits = a.edits + work.first_edit;
  const uint32_t end = edits_below(edits, work.n_edits, range.end);
  for (uint32_t e = edits_below(edits, work.n_edits, range.begin) + thread(); e < end; e += threads())
    to[edits[e].id] = edit_value(to[edits[e].id], edits[e], work, a.biases);
  sync_block();
}

/// e^x as turbo_exp gives it for x <= 0, by the same operations; no number gives 0.
TB_DEVICE float weight_of(float x) {
  const bool inside = x >= TURBO_EXP_LO;
  const float clamped = inside ? x : TURBO_EXP_LO;
  const float n = (clamped * TURBO_EXP_LOG2E + 12582912.0f) - 12582912.0f;
  float r = fmadd(-n, TURBO_EXP_LN2_HI, clamped);
  r = fmadd(-n, TURBO_EXP_LN2_LO, r);
  float p = TURBO_EXP_C6;
  p = fmadd(p, r, TURBO_EXP_C5);
  p = fmadd(p, r, TURBO_EXP_C4);
  p = fmadd(p, r, TURBO_EXP_C3);
  p = fmadd(p, r, TURBO_EXP_C2);
  p = fmadd(p, r, TURBO_EXP_C1);
  p = fmadd(p, r * r, r) + 1.0f;
  const int32_t k = static_cast<int32_t>(n), half = k >> 1;
  const float y = p * from_bits(static_cast<uint32_t>(half + 127) << 23) * from_bits(static_cast<uint32_t>(k - half + 127) << 23);
  return inside ? y : 0.0f;
}

TB_DEVICE uint32_t bin_of(float x, float max, float unit) {
  const float z = (x - max) / unit;
  return z > -static_cast<float>((kBins - 1) / kBinsPerUnit) ? static_cast<uint32_t>(z * -static_cast<float>(kBinsPerUnit)) : kBins - 1;
}

/// What a block of a view reads.
struct Look {
  const float *values, *model;
  float max, unit;
  Range range;
};
TB_DEVICE Look look_at(const ViewArgs& a, const View& view) {
  const Work& work = a.works[view.work];
  const bool edited = view.flags & kViewEdited;
  const WorkFound& found = a.work_found[view.work];
  Look look;
  look.model = a.logits + work.row * a.stride;
  look.values = edited ? a.edited + work.edited * a.edited_stride : look.model;
  look.max = key_value(edited ? found.edited_key : found.key);
  look.unit = view.temperature < 1 ? view.temperature : 1;
  look.range = range_of(block_x() % a.blocks, kWeighBlock, a.vocab);
  return look;
}

/// Segment sums of the block's range: 16 lanes of a segment, element j in lane j mod 16, then the fixed tree.
TB_DEVICE void weigh_segments(const Look& look, float temperature, double* sums) {
  const uint32_t lane16 = thread() % 16;
  for (uint64_t base = look.range.begin; base < look.range.end; base += uint64_t{threads() / 16} * kSegment) {
    const uint64_t begin = base + uint64_t{thread() / 16} * kSegment;
    const uint64_t end = begin + kSegment < look.range.end ? begin + kSegment : look.range.end;
    double sum = 0;
    for (uint64_t i = begin + lane16; i < end; i += 16) sum += static_cast<double>(weight_of((look.values[i] - look.max) / temperature));
    TB_UNROLL
    for (uint32_t m = 8; m; m >>= 1) sum += shuffle_xor(sum, m);
    if (lane16 == 0 && begin < look.range.end) sums[begin / kSegment] = sum;
  }
}

/// Segments of the row in rising order, by one thread from shared memory.
TB_DEVICE double add_segments(const double* sums, uint32_t n, double* tile) {
  double total = 0;
  for (uint32_t base = 0; base < n; base += threads()) {
    sync_block();
    if (base + thread() < n) tile[thread()] = __builtin_bit_cast(double, load_shared_word(reinterpret_cast<const uint64_t*>(sums + base + thread())));
    sync_block();
    if (thread() == 0)
      for (uint32_t i = 0; i < threads() && base + i < n; ++i) total += tile[i];
  }
  return total;
}

}  // namespace

TB_KERNEL(argmax_rows, GreedyArgs, kThreads) {
  TB_SHARED(Slots, slots);
  const uint32_t row = block_x() / args.logits.splits;
  const Range range = range_of(block_x() % args.logits.splits, args.logits.split, args.logits.vocab);
  const ArgmaxPart part = block_argmax(argmax_part(args.logits.data + row * args.logits.stride, range.begin, range.end), slots);
  ArgmaxPart whole;
  if (thread() == 0 && argmax_arrive(args.scratch + row, part, args.logits.splits, whole)) {
    args.found[row].key = whole.key;
    args.found[row].nan = whole.nan;
  }
}

TB_KERNEL(survey_rows, SurveyArgs, kThreads) {
  TB_SHARED(Slots, slots);
  const uint32_t index = block_x() / args.logits.splits;
  const Work work = args.works[index];
  const Range range = range_of(block_x() % args.logits.splits, args.logits.split, args.logits.vocab);
  const float* const row = args.logits.data + work.row * args.logits.stride;
  const ArgmaxPart part = block_argmax(argmax_part(row, range.begin, range.end), slots);
  ArgmaxRow* const scratch = args.scratch + uint64_t{index} * 2;
  if (work.edited != kNone) {
    float* const edited = args.edited + work.edited * args.edited_stride;
    write_edited(args, work, row, edited, range);
    const ArgmaxPart best = block_argmax(argmax_part(edited, range.begin, range.end), slots);
    if (thread() == 0) atomic_max(&scratch[1].key, best.key);
  }
  ArgmaxPart whole;
  if (thread() != 0 || !argmax_arrive(scratch, part, args.logits.splits, whole)) return;
  const uint64_t edited_key = load_shared_word(&scratch[1].key);
  store_shared_word(&scratch[1].key, uint64_t{0});
  args.found[index].key = whole.key;
  args.found[index].edited_key = edited_key;
  args.found[index].model_logit = edited_key ? row[key_index(edited_key)] : 0;
  args.found[index].nan = whole.nan;
}

TB_KERNEL(weigh_views, ViewArgs, kThreads) {
  using Counts = uint32_t[kBins];
  constexpr uint32_t kGroups = 128;
  using Groups = uint32_t[kGroups];
  using Tile = double[kThreads];
  TB_SHARED(Counts, counts);
  TB_SHARED(Groups, groups);
  TB_SHARED(Tile, tile);
  TB_SHARED(uint32_t, is_last);
  const uint32_t index = block_x() / args.blocks;
  const View view = args.views[index];
  const Look look = look_at(args, view);
  const bool lists = view.list != kNone;
  double* const sums = args.sums + index * args.sums_stride;
  uint32_t* const bins = args.bins + uint64_t{index} * kBins;
  if (view.flags & kViewMass) weigh_segments(look, view.temperature, sums);
  if (lists) {
    for (uint32_t b = thread(); b < kBins; b += threads()) counts[b] = 0;
    sync_block();
    for (uint64_t i = look.range.begin + thread(); i < look.range.end; i += threads())
      if (look.values[i] > minus_infinity()) atomic_add(&counts[bin_of(look.values[i], look.max, look.unit)], 1);
    sync_block();
    for (uint32_t b = thread(); b < kBins; b += threads())
      if (counts[b] != 0) atomic_add(bins + b, counts[b]);
  }
  fence_device();  // sums and bins of every thread, before the arrival
  sync_block();
  if (thread() == 0) is_last = atomic_add(args.arrivals + index, 1) + 1 == args.blocks;
  sync_block();
  if (!is_last) return;
  fence_device();
  if (view.flags & kViewMass) {
    const double mass = add_segments(sums, (args.vocab + kSegment - 1) / kSegment, tile);
    if (thread() == 0) args.found[index].mass = mass;
  }
  if (lists) {
    for (uint32_t b = thread(); b < kBins; b += threads()) {
      counts[b] = load_shared_word(bins + b);
      store_shared_word(bins + b, uint32_t{0});
    }
    sync_block();
    for (uint32_t g = thread(); g < kGroups; g += threads()) {
      uint32_t sum = 0;
      for (uint32_t b = 0; b < kBins / kGroups; ++b) sum += counts[g * (kBins / kGroups) + b];
      groups[g] = sum;
    }
    sync_block();
    if (thread() == 0) {
      uint32_t n = 0, g = 0;
      while (g < kGroups && n + groups[g] <= kListCapacity) n += groups[g++];
      uint32_t end = g * (kBins / kGroups);
      while (end < kBins && n + counts[end] <= kListCapacity) n += counts[end++];
      args.found[index].n = n;
      args.found[index].end_bin = end;
      args.found[index].filled = 0;
    }
  }
  if (thread() == 0) store_shared_word(args.arrivals + index, uint32_t{0});
}

TB_KERNEL(list_views, ViewArgs, kThreads) {
  const uint32_t index = block_x() / args.blocks;
  const View view = args.views[index];
  if (view.list == kNone || args.found[index].n == 0) return;
  const Look look = look_at(args, view);
  const uint32_t end_bin = args.found[index].end_bin;
  const uint64_t base = uint64_t{view.list} * kListCapacity;
  for (uint64_t i = look.range.begin + thread(); i < look.range.end; i += threads()) {
    const float value = look.values[i];
    if (!(value > minus_infinity()) || bin_of(value, look.max, look.unit) >= end_bin) continue;
    const uint32_t slot = atomic_add(&args.found[index].filled, 1);
    if (slot >= kListCapacity) continue;
    args.keys[base + slot] = ~argmax_key(value, static_cast<uint32_t>(i));
    args.model_logits[base + slot] = look.model[i];
  }
}
