// The sampler's kernels as C++ functions of this program, run by fibers.
#pragma once

#include <turbo/kernel/gpu/chain.hpp>
#include <turbo/kernel/gpu/device.hpp>

#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

namespace turbo::kernels {

constexpr float kInf = std::numeric_limits<float>::infinity();

template <typename Args>
void launch(const std::string& name, uint32_t blocks, const Args& args, uint32_t threads = 64, bool resident = false) {
  const gpu::fiber::Kernel* kernel = gpu::fiber::Kernel::find(gpu::fiber::Kernel::first(), name);
  ASSERT_NE(kernel, nullptr) << name;
  ASSERT_EQ(kernel->argument_bytes, sizeof(Args));
  if (blocks > 0) gpu::fiber::run(*kernel, {blocks, 1, 1}, threads, 0, &args, resident);
}

/// Finite, of any size, with zeros of both signs and ties.
inline float odd_float(std::mt19937& rng) {
  switch (rng() % 8) {
    case 0: return 0.0f;
    case 1: return -0.0f;
    case 2: return -1e30f;
    case 3: return std::numeric_limits<float>::denorm_min() * static_cast<float>(1 + rng() % 3) * (rng() % 2 ? 1.f : -1.f);
    case 4: return rng() % 2 ? std::numeric_limits<float>::lowest() : std::numeric_limits<float>::max();
    default: return static_cast<float>(static_cast<int>(rng() % 2001) - 1000) / 16;
  }
}
inline float as_bf16(float v) { return gpu::from_bits((gpu::bits(v) + 0x7fffu + (gpu::bits(v) >> 16 & 1)) & 0xffff0000u); }

}  // namespace turbo::kernels
