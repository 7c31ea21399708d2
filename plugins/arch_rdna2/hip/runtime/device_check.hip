// Everything that kernels of this tier rely on, in small, against answers that the host knows: sums and prefix sums over
// lanes, waves and blocks, shuffles, dot products, half conversion, rounding. Run once on a device before it is used.
#include "device_check_args.h"

#include <turbo/kernel/gpu/device.hpp>

using namespace turbo::gpu;
using namespace turbo::hip;

TB_KERNEL(device_check, DeviceCheckArgs, kCheckThreads) {
  using Floats = float[kCheckThreads / kWave];
  using Words = uint32_t[kCheckThreads / kWave];
  TB_SHARED(Floats, slots);
  TB_SHARED(Words, waves);
  const uint32_t t = thread(), at = block_x() * threads() + t;
  uint32_t* const out = args.words + static_cast<uint64_t>(at) * kCheckWords;

  out[kCheckLaneSum] = static_cast<uint32_t>(wave_sum(static_cast<int32_t>(lane() + 1)));
  out[kCheckBlockSum] = bits(block_sum(static_cast<float>(t + 1), slots, threads() / kWave));

  // Inclusive prefix sums, twice: of 1 for each thread, and of what the threads of all blocks add to the totals.
  uint32_t count = 1, share = at + 1;
  for (uint32_t distance = 1; distance < kWave; distance *= 2) {
    const uint32_t from = lane() >= distance ? lane() - distance : lane();
    const uint32_t other_count = shuffle(count, from), other_share = shuffle(share, from);
    if (lane() >= distance) {
      count += other_count;
      share += other_share;
    }
  }
  if (lane() == kWave - 1) waves[wave()] = share;
  sync_block();
  out[kCheckPrefix] = count + wave() * kWave;
  if (t == 0) {
    uint32_t total = 0;
    for (uint32_t w = 0; w < threads() / kWave; ++w) total += waves[w];
    args.totals[block_x()] = total;
    atomic_add(args.sum, total);
  }

  out[kCheckDot4] = static_cast<uint32_t>(dot4(at * 2654435761u, at * 40503u + 0x80ff7f01u, static_cast<int32_t>(at) - 1000));

  // Every half number is converted by one thread: 32 each.
  uint32_t from_half = 0, to_half = 0;
  for (uint32_t i = 0; i < 65536 / (kCheckBlocks * kCheckThreads); ++i) {
    const uint16_t half = static_cast<uint16_t>(at * (65536 / (kCheckBlocks * kCheckThreads)) + i);
    const bool number = (half & 0x7c00) != 0x7c00;
    const float f = half_to_float(half);
    from_half = from_half * 31 + (number ? bits(f) : 1);
    // At, just below and just above the middle between two neighbours.
    for (uint32_t step = 0xfff; step <= 0x1001; ++step)
      to_half = to_half * 31 + (number ? float_to_half(from_bits(bits(f) + step)) : 1);
  }
  out[kCheckHalf] = from_half;
  out[kCheckRounding] = to_half;

  const uint32_t turned = shuffle(at * 3 + 1, (lane() * 5 + 7) & 31), swapped = shuffle_xor(at, 9);
  out[kCheckShuffle] = turned * 31 + swapped;
  out[kCheckBallot] = turbo::gpu::ballot(lane() % 3 == at / kWave % 3);

  // A product that does not fit: fused it is rounded once, apart twice.
  const float x = 1.0f + static_cast<float>(at + 1) * 0x1p-20f, y = 1.0f - static_cast<float>(at + 1) * 0x1p-21f, z = -1.0f;
  out[kCheckFused] = bits(fmadd(x, y, z));
  out[kCheckApart] = bits(x * y + z);
}

TB_KERNEL(device_check_totals, DeviceCheckTotalsArgs, 32) {
  const uint32_t n = min_of(thread(), kCheckBlocks - 1);
  uint32_t sum = 0;
  for (uint32_t i = 0; i <= n; ++i) sum += args.totals[i];
  if (thread() < kCheckBlocks) args.prefix[n] = sum;
}
