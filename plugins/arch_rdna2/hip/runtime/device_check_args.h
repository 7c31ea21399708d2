// What the kernels of the device check are given, and what each thread of the first answers. Host and device.
#pragma once

#include <stdint.h>

namespace turbo::hip {

constexpr uint32_t kCheckBlocks = 8, kCheckThreads = 256;

enum CheckWord : uint32_t {
  kCheckLaneSum,    // 1 .. 32 over the wave
  kCheckBlockSum,   // 1 .. threads over the block, as float bits
  kCheckPrefix,     // 1 .. thread + 1
  kCheckDot4,
  kCheckHalf,       // conversions from half, hashed
  kCheckRounding,   // conversions to half, hashed
  kCheckShuffle,
  kCheckBallot,
  kCheckFused,      // bits of fmadd(x, y, z)
  kCheckApart,      // bits of x * y + z
  kCheckWords
};

struct DeviceCheckArgs {
  uint32_t* words;   // [blocks][threads][kCheckWords]
  uint32_t* totals;  // [blocks]: the block's share of 1 .. blocks * threads
  uint32_t* sum;     // zero before: all of it
};

struct DeviceCheckTotalsArgs {
  const uint32_t* totals;  // [kCheckBlocks]
  uint32_t* prefix;        // [kCheckBlocks]: sum of the totals up to and with the block's
};

}  // namespace turbo::hip
