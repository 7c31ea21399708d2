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

/// The kernel's arguments where the launch put them, so that an element of an array among them is one load: compilers for
/// AMD else copy the array to scratch.
template <class Args>
TB_DEVICE const Args& in_place(const Args& args) {
#if defined(TB_AMD) && defined(__HIP_DEVICE_COMPILE__)
  (void)args;
  typedef const __attribute__((address_space(4))) Args* Pointer;
  return *(const Args*)(Pointer)__builtin_amdgcn_kernarg_segment_ptr();
#else
  return args;
#endif
}
template <class Args>
TB_DEVICE Work work_of(const Args& args, uint32_t i) {
  const Tasks& tasks = in_place(args).tasks;
  return tasks.works ? tasks.works[i] : tasks.few_works[i];
}
template <class Args>
TB_DEVICE View view_of(const Args& args, uint32_t i) {
  const Tasks& tasks = in_place(args).tasks;
  return tasks.views ? tasks.views[i] : tasks.few_views[i];
}

/// What a block of a view reads.
struct Look {
  const float *values, *model;
  float max, unit;
  Range range;
};
TB_DEVICE Look look_at(const ViewArgs& a, const View& view) {
  const Work work = work_of(a, view.work);
  const bool edited = view.flags & kViewEdited;
  const WorkFound& found = a.work_found[view.work];
  Look look;
  look.model = a.logits + work.row * a.stride;
  look.values = edited ? a.edited + work.edited * a.edited_stride : look.model;
  look.max = key_value(edited ? found.edited_key : found.key);
  look.unit = view.temperature < 1 ? view.temperature : 1;
  look.range = range_of(block_x() % a.blocks, kSegment, a.vocab);
  return look;
}

/// Sum of a segment's weights by one wave: element j in lane j mod 16, then the fixed tree. Both halves do the same.
TB_DEVICE double segment_sum(const float* weights, uint32_t n) {
  double sum = 0;
  for (uint32_t j = lane() % 16; j < n; j += 16) sum += static_cast<double>(weights[j]);
  TB_UNROLL
  for (uint32_t m = 8; m; m >>= 1) sum += shuffle_xor(sum, m);
  return sum;
}

/// Sum over the lanes up to this one.
TB_DEVICE uint64_t wave_sum_up_to(uint64_t sum) {
  TB_UNROLL
  for (uint32_t d = 1; d < kWave; d *= 2) {
    const uint64_t other = shuffle(sum, (lane() - d) % kWave);
    sum += lane() >= d ? other : 0;
  }
  return sum;
}

// Masses while a list's end is looked for are integers, 1 is 2^30: sums are exact whatever their order, for 2^34 tokens.
constexpr float kOne = 1073741824.0f;
constexpr uint32_t kBinsPerThread = kBins / kThreads;

/// Bounds of the weights in a thread's bins, from the first bin on.
struct BinWeights {
  float step, ratio, upper;
  TB_DEVICE BinWeights(uint32_t first_bin, float temperature) {
    step = 1.0f / (kBinsPerUnit * (temperature > 1 ? temperature : 1.0f));
    ratio = weight_of(-step);
    upper = weight_of(-static_cast<float>(first_bin) * step) * kOne;
  }
  TB_DEVICE uint32_t high() const { return static_cast<uint32_t>(upper) + 1; }
  TB_DEVICE void next() { upper *= ratio; }
  /// After next(): of the bin before. The last bin has no lower bound.
  TB_DEVICE uint32_t low(uint32_t bin) const { return bin + 1 < kBins ? static_cast<uint32_t>(upper) : 0; }
};

struct ListEnd {
  uint32_t n, bin;
};
/// Where the view's list ends, by all threads of a full block; the same in every block. The mass is known but for the width
/// of a bin, so the share is held for certain.
TB_DEVICE ListEnd list_end(const uint32_t* bins, const View& view) {
  TB_SHARED(Slots, counts);
  TB_SHARED(Slots, lows);
  TB_SHARED(Slots, highs);
  using Ends = uint32_t[4];
  TB_SHARED(Ends, ends);
  const uint32_t first = thread() * kBinsPerThread;
  uint32_t in[kBinsPerThread];
  TB_UNROLL
  for (uint32_t q = 0; q < kBinsPerThread / 4; ++q) {
    const Words4 four = reinterpret_cast<const Words4*>(bins + first)[q];
    in[q * 4] = four.x;
    in[q * 4 + 1] = four.y;
    in[q * 4 + 2] = four.z;
    in[q * 4 + 3] = four.w;
  }
  if (thread() < 4) ends[thread()] = kBins;
  BinWeights weights(first, view.temperature);
  uint64_t count = 0, low = 0, high = 0;
  TB_UNROLL
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    count += in[i];
    high += uint64_t{in[i]} * weights.high();
    weights.next();
    low += uint64_t{in[i]} * weights.low(first + i);
  }
  uint64_t count_up_to = wave_sum_up_to(count), low_up_to = wave_sum_up_to(low);
  const uint64_t high_up_to = wave_sum_up_to(high);
  if (lane() == kWave - 1) {
    counts[wave()] = count_up_to;
    lows[wave()] = low_up_to;
    highs[wave()] = high_up_to;
  }
  sync_block();
  uint64_t mass = 0, all = 0;
  TB_UNROLL
  for (uint32_t w = 0; w < kThreads / kWave; ++w) {
    if (w < wave()) {
      count_up_to += counts[w];
      low_up_to += lows[w];
    }
    mass += highs[w];
    all += counts[w];
  }
  constexpr double kSafe = 1 + 1.0 / 4096;  // upper weights are those of a bin's edge but for rounding
  const uint64_t wanted = view.share < 1 ? static_cast<uint64_t>(static_cast<double>(mass) * static_cast<double>(view.share) * kSafe) : ~uint64_t{0};
  // Each end lies in the bins of the one thread whose sums pass what is wanted; the fourth is the list's own.
  uint64_t n = count_up_to - count, held = low_up_to - low;
  const bool passes = (n < view.least && count_up_to >= view.least) || (held < wanted && low_up_to >= wanted) || (n <= kListCapacity && count_up_to > kListCapacity);
  if (passes) {
    weights = BinWeights(first, view.temperature);
    for (uint32_t i = 0; i < kBinsPerThread; ++i) {
      const uint64_t n_before = n, held_before = held;
      weights.next();
      n += in[i];
      held += uint64_t{in[i]} * weights.low(first + i);
      if (n_before < view.least && n >= view.least) ends[0] = first + i + 1;
      if (held_before < wanted && held >= wanted) ends[1] = first + i + 1;
      if (n_before <= kListCapacity && n > kListCapacity) ends[2] = first + i;
    }
  }
  sync_block();
  const uint32_t share = wanted == 0 ? 0 : min_of(ends[1], view.last_bin);
  const uint32_t bin = min_of(ends[0] > share ? ends[0] : share, ends[2]);
  if (bin >= first && bin - first < kBinsPerThread) {
    n = count_up_to - count;
    for (uint32_t i = 0; i < bin - first; ++i) n += in[i];
    ends[3] = static_cast<uint32_t>(n);
  }
  sync_block();
  return {bin < kBins ? ends[3] : static_cast<uint32_t>(all), bin};
}

/// The block's elements of a segment, a few of each thread; beyond the row minus infinity, which no view counts.
constexpr uint32_t kPerThread = kSegment / kThreads;
TB_DEVICE void load_segment(const Look& look, float* values) {
  TB_UNROLL
  for (uint32_t i = 0; i < kPerThread; ++i) {
    const uint64_t at = look.range.begin + i * kThreads + thread();
    values[i] = at < look.range.end ? look.values[at] : minus_infinity();
  }
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
  for (uint64_t i = uint64_t{block_x()} * threads() + thread(); i < args.n_cleared; i += uint64_t{grid_x()} * threads()) args.cleared[i] = 0;
  const uint32_t index = block_x() / args.logits.splits;
  const Work work = work_of(args, index);
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
  const WorkFound found{whole.key, edited_key, edited_key ? row[key_index(edited_key)] : 0, whole.nan};
  args.found[index] = found;
  args.host_found[index] = found;
}

// Full blocks from here on, one a segment.
TB_KERNEL(weigh_views, ViewArgs, kThreads) {
  using Counts = uint32_t[kBins];
  using Weights = float[kSegment];
  TB_SHARED(Counts, counts);
  TB_SHARED(Weights, weights);
  const uint32_t index = block_x() / args.blocks;
  const View view = view_of(args, index);
  const Look look = look_at(args, view);
  const bool lists = view.list != kNone, weighs = view.flags & kViewMass;
  float values[kPerThread];
  load_segment(look, values);
  if (lists) {
    TB_UNROLL
    for (uint32_t i = 0; i < kBinsPerThread; ++i) counts[i * kThreads + thread()] = 0;
    sync_block();
  }
  TB_UNROLL
  for (uint32_t i = 0; i < kPerThread; ++i) {
    if (weighs) weights[i * kThreads + thread()] = weight_of((values[i] - look.max) / view.temperature);
    if (lists && values[i] > minus_infinity()) atomic_add(&counts[bin_of(values[i], look.max, look.unit)], 1);
  }
  sync_block();
  if (weighs && wave() == 0) {
    const double sum = segment_sum(weights, static_cast<uint32_t>(look.range.end - look.range.begin));
    if (thread() == 0) args.sums[index * args.sums_stride + block_x() % args.blocks] = sum;
  }
  if (!lists) return;
  uint32_t* const bins = args.bins + uint64_t{index} * kBins;
  TB_UNROLL
  for (uint32_t i = 0; i < kBinsPerThread; ++i) {
    const uint32_t b = i * kThreads + thread();
    if (counts[b] != 0) atomic_add(bins + b, counts[b]);
  }
}

TB_KERNEL(list_views, ViewArgs, kThreads) {
  TB_SHARED(uint32_t, in_block);
  TB_SHARED(uint32_t, begin);
  const uint32_t index = block_x() / args.blocks;
  const View view = view_of(args, index);
  if (view.list == kNone) return;
  const Look look = look_at(args, view);
  float values[kPerThread];
  load_segment(look, values);
  if (thread() == 0) in_block = 0;
  const ListEnd end = list_end(args.bins + uint64_t{index} * kBins, view);
  if (block_x() % args.blocks == 0 && thread() == 0) args.found[index] = {end.n, end.bin};
  const auto listed = [&](float x) { return x > minus_infinity() && bin_of(x, look.max, look.unit) < end.bin; };
  uint32_t mine = 0;
  TB_UNROLL
  for (uint32_t i = 0; i < kPerThread; ++i) mine += listed(values[i]);
  uint32_t place = mine ? atomic_add(&in_block, mine) : 0;
  sync_block();
  if (in_block == 0) return;
  if (thread() == 0) begin = atomic_add(args.filled + index, in_block);
  sync_block();
  if (mine == 0) return;
  place += begin;
  const uint64_t base = uint64_t{view.list} * kListCapacity;
  TB_UNROLL
  for (uint32_t i = 0; i < kPerThread; ++i) {
    if (!listed(values[i]) || place >= kListCapacity) continue;
    const uint64_t at = look.range.begin + i * kThreads + thread();
    args.keys[base + place] = ~argmax_key(values[i], static_cast<uint32_t>(at));
    if (view.flags & kViewEdited) args.model_logits[base + place] = look.model[at];
    ++place;
  }
}
