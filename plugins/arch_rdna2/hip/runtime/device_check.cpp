#include "device_check.h"

#include <turbo/kernel/half.h>

#include <bit>
#include <cmath>

#include "device_check_args.h"

namespace turbo::hip {
namespace {

constexpr const char* kWhat[kCheckWords] = {"sum over lanes",      "sum over a block",         "prefix sum over a block", "dot4",
                                            "half to float",       "float to half",            "shuffle",                 "ballot",
                                            "fused multiply-add",  "multiply and add apart"};

int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
  for (uint32_t i = 0; i < 32; i += 8) c += static_cast<int8_t>(a >> i) * static_cast<int8_t>(b >> i);
  return c;
}

uint32_t bits(float f) { return std::bit_cast<uint32_t>(f); }

// The answer of one thread. Volatile keeps this compiler from fusing what the device must not fuse either.
void expected(uint32_t at, uint32_t (&words)[kCheckWords]) {
  const uint32_t thread = at % kCheckThreads, lane = thread % 32, first = at - lane;
  words[kCheckLaneSum] = 32 * 33 / 2;
  words[kCheckBlockSum] = bits(static_cast<float>(kCheckThreads * (kCheckThreads + 1) / 2));
  words[kCheckPrefix] = thread + 1;
  words[kCheckDot4] = static_cast<uint32_t>(dot4(at * 2654435761u, at * 40503u + 0x80ff7f01u, static_cast<int32_t>(at) - 1000));
  uint32_t from_half = 0, to_half = 0;
  constexpr uint32_t each = 65536 / (kCheckBlocks * kCheckThreads);
  for (uint32_t i = 0; i < each; ++i) {
    const auto half = static_cast<uint16_t>(at * each + i);
    const bool number = (half & 0x7c00) != 0x7c00;
    const float f = turbo_f16_to_f32(half);
    from_half = from_half * 31 + (number ? bits(f) : 1);
    for (uint32_t step = 0xfff; step <= 0x1001; ++step)
      to_half = to_half * 31 + (number ? turbo_f32_to_f16(std::bit_cast<float>(bits(f) + step)) : 1);
  }
  words[kCheckHalf] = from_half;
  words[kCheckRounding] = to_half;
  words[kCheckShuffle] = ((first + ((lane * 5 + 7) & 31)) * 3 + 1) * 31 + (first + (lane ^ 9));
  uint32_t ballot = 0;
  for (uint32_t l = 0; l < 32; ++l) ballot |= static_cast<uint32_t>(l % 3 == at / 32 % 3) << l;
  words[kCheckBallot] = ballot;
  const float x = 1.0f + static_cast<float>(at + 1) * 0x1p-20f, y = 1.0f - static_cast<float>(at + 1) * 0x1p-21f, z = -1.0f;
  words[kCheckFused] = bits(std::fma(x, y, z));
  volatile float product = x * y;
  words[kCheckApart] = bits(product + z);
}

[[noreturn]] void wrong(const std::string& what, uint32_t expected, uint32_t found) {
  char text[160];
  std::snprintf(text, sizeof text, "self-test: %s: expected 0x%08x but found 0x%08x", what.c_str(), expected, found);
  throw Failure(TURBO_INTERNAL, text, "the device, its driver or its code object is not to be trusted; use another tier");
}

struct Module {
  Module(Device& device, const turbo_code_object* objects, uint32_t n) : device(device), module(device.load(objects, n)) {}
  ~Module() { device.unload(module); }
  Device& device;
  turbo_module* module;
};

}  // namespace

void check_device(Device& device, const turbo_code_object* objects, uint32_t n_objects) {
  constexpr uint32_t n_words = kCheckBlocks * kCheckThreads * kCheckWords, n_all = n_words + 2 * kCheckBlocks + 1;
  const Module module(device, objects, n_objects);
  Runtime& runtime = device.runtime();
  turbo_kernel* const check = runtime.kernel(module.module, "device_check");
  turbo_kernel* const totals = runtime.kernel(module.module, "device_check_totals");
  const DeviceMemory answers(device, TURBO_MEMORY_DEVICE, n_all * sizeof(uint32_t), "self-test");
  const DeviceMemory host(device, TURBO_MEMORY_PINNED, n_all * sizeof(uint32_t), "self-test");
  auto* const words = answers.get<uint32_t>();
  const DeviceCheckArgs check_args{words, words + n_words, words + n_words + 2 * kCheckBlocks};
  const DeviceCheckTotalsArgs totals_args{check_args.totals, check_args.totals + kCheckBlocks};
  runtime.fill(device.stream(), words, 0, answers.bytes());
  runtime.launch(device.stream(), check,
                 {sizeof(turbo_launch), kCheckBlocks, 1, 1, kCheckThreads, 0, &check_args, sizeof check_args, 0});
  runtime.launch(device.stream(), totals, {sizeof(turbo_launch), 1, 1, 1, 32, 0, &totals_args, sizeof totals_args, 0});
  runtime.copy(device.stream(), host.get(), words, answers.bytes(), TURBO_COPY_TO_HOST);
  runtime.sync(device.stream());

  const auto* const found = host.get<const uint32_t>();
  for (uint32_t at = 0; at < kCheckBlocks * kCheckThreads; ++at) {
    uint32_t want[kCheckWords];
    expected(at, want);
    for (uint32_t w = 0; w < kCheckWords; ++w)
      if (const uint32_t got = found[at * kCheckWords + w]; got != want[w])
        wrong(std::string(kWhat[w]) + ", block " + std::to_string(at / kCheckThreads) + ", thread " + std::to_string(at % kCheckThreads), want[w], got);
  }
  const uint32_t* const blocks = found + n_words;
  for (uint32_t b = 0; b < kCheckBlocks; ++b) {
    const uint32_t n = (b + 1) * kCheckThreads, upto = n * (n + 1) / 2, before = b * kCheckThreads * (b * kCheckThreads + 1) / 2;
    if (blocks[b] != upto - before) wrong("total of block " + std::to_string(b), upto - before, blocks[b]);
    if (blocks[kCheckBlocks + b] != upto) wrong("prefix sum over blocks, block " + std::to_string(b), upto, blocks[kCheckBlocks + b]);
    if (b == kCheckBlocks - 1 && blocks[2 * kCheckBlocks] != upto) wrong("sum over blocks", upto, blocks[2 * kCheckBlocks]);
  }
}

}  // namespace turbo::hip
