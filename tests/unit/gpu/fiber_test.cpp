// The fiber platform: what kernels may do there gives what a GPU gives, and what they must not do is told.
#include "gpu/kernels/basic.hip"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

namespace {

using turbo::gpu::fiber::FiberFault;
using turbo::gpu::fiber::Kernel;

template <typename Args>
void run(const char* name, uint32_t grid, uint32_t threads, const Args& args, uint32_t shared_bytes = 0, bool resident = false) {
  const Kernel* kernel = Kernel::find(Kernel::first(), name);
  ASSERT_NE(kernel, nullptr) << name;
  ASSERT_EQ(kernel->argument_bytes, sizeof args);
  turbo::gpu::fiber::run(*kernel, {grid, 1, 1}, threads, shared_bytes, &args, resident);
}

/// Words of the fault that a launch gives; empty when it gives none.
template <typename Args>
std::string fault_of(const char* name, uint32_t grid, uint32_t threads, const Args& args, bool resident = false) {
  try {
    run(name, grid, threads, args, 0, resident);
  } catch (const FiberFault& fault) {
    return fault.what();
  }
  return {};
}

TEST(Fiber, KernelsAreListed) {
  EXPECT_NE(Kernel::find(Kernel::first(), "vector_add"), nullptr);
  EXPECT_EQ(Kernel::find(Kernel::first(), "vector"), nullptr);
  EXPECT_EQ(Kernel::find(nullptr, "vector_add"), nullptr);
}

TEST(Fiber, BlocksAndThreads) {
  std::vector<float> a(300), b(300), out(301, -1);
  std::iota(a.begin(), a.end(), 0.f);
  std::iota(b.begin(), b.end(), 100.f);
  run("vector_add", 2, 256, AddArgs{a.data(), b.data(), out.data(), 300});
  for (int i = 0; i < 300; ++i) EXPECT_EQ(out[i], a[i] + b[i]);
  EXPECT_EQ(out[300], -1);
}

TEST(Fiber, ThreadsOutsideTheBound) {
  const AddArgs args{nullptr, nullptr, nullptr, 0};
  EXPECT_NE(fault_of("vector_add", 1, 288, args), "");
  EXPECT_NE(fault_of("vector_add", 1, 0, args), "");
  EXPECT_NE(fault_of("vector_add", 1, 33, args), "");
  EXPECT_EQ(fault_of("vector_add", 1, 256, args), "");
}

// The order of summation is a promise: pairs at distance 16, 8, 4, 2, 1, then the waves in rising order.
TEST(Fiber, SumsInTheirOrder) {
  constexpr uint32_t cols = 100, threads = 128;
  std::vector<float> x(cols), out(threads / 32 * 5);
  for (uint32_t i = 0; i < cols; ++i) x[i] = std::sin(static_cast<float>(i)) * 1000.f / (1.f + static_cast<float>(i % 7));
  run("sums", 1, threads, RowArgs{x.data(), out.data(), cols});
  float total = 0;
  for (uint32_t w = 0; w < threads / 32; ++w) {
    float tree[32], highest = 0;
    uint32_t positive = 0;
    int32_t whole = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      tree[i] = w * 32 + i < cols ? x[w * 32 + i] : 0.f;
      highest = i ? std::max(highest, tree[i]) : tree[i];
      whole += static_cast<int32_t>(tree[i]);
      positive |= static_cast<uint32_t>(tree[i] > 0) << i;
    }
    for (uint32_t d = 16; d; d /= 2)
      for (uint32_t i = 0; i < d; ++i) tree[i] += tree[i + d];
    total += tree[0];
    EXPECT_EQ(out[w * 5], tree[0]);
    EXPECT_EQ(out[w * 5 + 1], highest);
    EXPECT_EQ(out[w * 5 + 2], static_cast<float>(whole));
    EXPECT_EQ(turbo::gpu::bits(out[w * 5 + 3]), positive);
  }
  for (uint32_t w = 0; w < threads / 32; ++w) EXPECT_EQ(out[w * 5 + 4], total);
}

TEST(Fiber, DynamicSharedMemory) {
  constexpr uint32_t cols = 300;
  std::vector<float> x(cols), out(cols);
  for (uint32_t i = 0; i < cols; ++i) x[i] = std::cos(static_cast<float>(i)) * 5.f;
  run("softmax_row", 1, 128, RowArgs{x.data(), out.data(), cols}, cols * sizeof(float));
  double sum = 0;
  for (float v : out) sum += v;
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_NEAR(out[0] / out[1], std::exp(x[0] - x[1]), 1e-4);
}

TEST(Fiber, ResidentBlocksMeet) {
  uint32_t arrived = 0, seen = 0;
  uint64_t highest = 0;
  std::vector<uint32_t> out(10);
  run("meet_all", 5, 64, MeetArgs{&arrived, &seen, &highest, out.data()}, 0, true);
  uint32_t tickets = 0;
  for (int b = 0; b < 5; ++b) {
    tickets |= 1u << out[b * 2];
    EXPECT_EQ(out[b * 2 + 1], 31u);
  }
  EXPECT_EQ(tickets, 31u);
  EXPECT_EQ(highest, 4 * 0x100000001ull);
  arrived = 0;
  EXPECT_NE(fault_of("meet_all", 5, 64, MeetArgs{&arrived, &seen, &highest, out.data()}, false).find("wait"), std::string::npos)
      << "blocks that run one after another cannot wait for each other";
}

TEST(Fiber, EveryHalf) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    const float f = turbo::gpu::half_to_float(static_cast<uint16_t>(h));
    if (exponent == 31 && fraction) {
      EXPECT_TRUE(std::isnan(f)) << h;
      EXPECT_TRUE((turbo::gpu::float_to_half(f) & 0x7fff) > 0x7c00) << h;
      continue;
    }
    double expected = exponent == 31 ? std::numeric_limits<double>::infinity()
                      : exponent     ? std::ldexp(1024.0 + fraction, static_cast<int>(exponent) - 25)
                                     : std::ldexp(static_cast<double>(fraction), -24);
    if (h & 0x8000) expected = -expected;
    ASSERT_EQ(f, expected) << h;
    ASSERT_EQ(std::signbit(f), (h & 0x8000) != 0) << h;
    ASSERT_EQ(turbo::gpu::float_to_half(f), h);
  }
}

// Halfway cases go to the even neighbour, a little more or less to the nearer one.
TEST(Fiber, FloatsBetweenHalves) {
  for (uint32_t h = 0; h < 0x7c00; ++h) {
    const double low = turbo::gpu::half_to_float(static_cast<uint16_t>(h));
    const double high = h + 1 == 0x7c00 ? 65536.0 : static_cast<double>(turbo::gpu::half_to_float(static_cast<uint16_t>(h + 1)));
    const float middle = static_cast<float>((low + high) / 2);
    for (const float sign : {1.f, -1.f}) {
      const uint32_t bit = sign < 0 ? 0x8000 : 0;
      ASSERT_EQ(turbo::gpu::float_to_half(sign * middle), ((h & 1) ? h + 1 : h) | bit) << h;
      ASSERT_EQ(turbo::gpu::float_to_half(sign * std::nextafterf(middle, 0.f)), h | bit) << h;
      ASSERT_EQ(turbo::gpu::float_to_half(sign * std::nextafterf(middle, 1e9f)), (h + 1) | bit) << h;
    }
  }
  EXPECT_EQ(turbo::gpu::float_to_half(1e20f), 0x7c00);
  EXPECT_EQ(turbo::gpu::float_to_half(-1e20f), 0xfc00);
  EXPECT_EQ(turbo::gpu::float_to_half(1e-20f), 0);
}

TEST(Fiber, DotOfBytes) {
  EXPECT_EQ(turbo::gpu::dot4(0x80ff7f01u, 0x80ff7f01u, -5), 16384 + 1 + 16129 + 1 - 5);
  EXPECT_EQ(turbo::gpu::dot4(0x00000080u, 0x0000007fu, 0), -16256);
}

}  // namespace

// What must not be done.
struct MisuseArgs {
  uint32_t* out;
  uint32_t how;
};

TB_KERNEL(divergent_shuffle, MisuseArgs, 64) {
  if (lane() < args.how) args.out[thread()] = shuffle_xor(thread(), 1);
}
TB_KERNEL(divergent_kinds, MisuseArgs, 32) {
  args.out[thread()] = lane() < args.how ? shuffle(lane(), 0) : ballot(true);
}
TB_KERNEL(shuffle_too_far, MisuseArgs, 32) { args.out[thread()] = shuffle(lane(), lane() + args.how); }
TB_KERNEL(divergent_barrier, MisuseArgs, 64) {
  if (thread() < args.how) sync_block();
  args.out[thread()] = 1;
}
TB_KERNEL(left_early, MisuseArgs, 64) {
  if (wave() == 1 && args.how) return;
  sync_block();
  args.out[thread()] = 1;
}
TB_KERNEL(waits_for_nobody, MisuseArgs, 32) {
  while (load_shared_word(args.out) == 0) turbo::gpu::pause();
}
TB_KERNEL(forgets_to_write, MisuseArgs, 32) {
  using Words = uint32_t[32];
  TB_SHARED(Words, words);
  if (lane() != args.how) words[lane()] = 0;
  sync_block();
  args.out[thread()] = words[lane()];
}
TB_KERNEL(exchange, MisuseArgs, 64) {
  using Words = uint32_t[64];
  TB_SHARED(Words, words);
  words[thread()] = thread() * 3;
  sync_block();
  args.out[thread()] = words[63 - thread()];
  args.out[64 + thread()] = shuffle(thread(), (lane() + 5) % 32);
  const uint64_t wide = shuffle_xor(uint64_t{thread()} << 40 | 7u, 3);
  args.out[128 + thread()] = static_cast<uint32_t>(wide >> 40) + static_cast<uint32_t>(wide & 0xff);
  sync_wave();
  atomic_add(&args.out[192], 1u);
  atomic_or(&args.out[193], 1u << lane());
}
TB_KERNEL(throws, MisuseArgs, 64) {
  if (thread() == args.how) throw std::runtime_error("from a kernel");
  sync_block();
}

namespace {

TEST(FiberMisuse, DivergentWaveOperations) {
  uint32_t out[64];
  EXPECT_NE(fault_of("divergent_shuffle", 1, 64, MisuseArgs{out, 7}).find("wait for each other"), std::string::npos);
  EXPECT_NE(fault_of("divergent_shuffle", 1, 64, MisuseArgs{out, 31}), "");
  EXPECT_EQ(fault_of("divergent_shuffle", 1, 64, MisuseArgs{out, 32}), "");
  EXPECT_NE(fault_of("divergent_kinds", 1, 32, MisuseArgs{out, 16}).find("divergent wave operation"), std::string::npos);
  EXPECT_EQ(fault_of("divergent_kinds", 1, 32, MisuseArgs{out, 32}), "");
  EXPECT_EQ(fault_of("divergent_kinds", 1, 32, MisuseArgs{out, 0}), "");
}

TEST(FiberMisuse, ShuffleFromNoLane) {
  uint32_t out[32];
  EXPECT_NE(fault_of("shuffle_too_far", 1, 32, MisuseArgs{out, 1}).find("shuffle from lane 32"), std::string::npos);
  EXPECT_EQ(fault_of("shuffle_too_far", 1, 32, MisuseArgs{out, 0}), "");
}

TEST(FiberMisuse, Barriers) {
  uint32_t out[64];
  EXPECT_NE(fault_of("divergent_barrier", 1, 64, MisuseArgs{out, 32}).find("barrier"), std::string::npos);
  EXPECT_NE(fault_of("divergent_barrier", 1, 64, MisuseArgs{out, 63}), "");
  EXPECT_EQ(fault_of("divergent_barrier", 1, 64, MisuseArgs{out, 64}), "");
  EXPECT_NE(fault_of("left_early", 1, 64, MisuseArgs{out, 1}), "");
  EXPECT_EQ(fault_of("left_early", 1, 64, MisuseArgs{out, 0}), "");
}

TEST(FiberMisuse, WaitWithoutEnd) {
  uint32_t out = 0;
  EXPECT_NE(fault_of("waits_for_nobody", 1, 32, MisuseArgs{&out, 0}).find("without end"), std::string::npos);
  out = 1;
  EXPECT_EQ(fault_of("waits_for_nobody", 1, 32, MisuseArgs{&out, 0}), "");
}

TEST(FiberMisuse, SharedMemoryStartsWithAPattern) {
  uint32_t out[32];
  run("forgets_to_write", 1, 32, MisuseArgs{out, 9});
  EXPECT_EQ(out[8], 0u);
  EXPECT_EQ(out[9], 0xa5a5a5a5u);
}

TEST(FiberMisuse, WhatAKernelThrowsComesOut) {
  EXPECT_THROW(run("throws", 1, 64, MisuseArgs{nullptr, 40}), std::runtime_error);
  uint32_t out[32];
  run("forgets_to_write", 1, 32, MisuseArgs{out, 40});  // the next launch is none the worse
  EXPECT_EQ(out[9], 0u);
}

TEST(Fiber, ExchangeThroughSharedMemoryShufflesAndAtomics) {
  uint32_t out[194] = {};
  run("exchange", 1, 64, MisuseArgs{out, 0});
  for (uint32_t t = 0; t < 64; ++t) {
    EXPECT_EQ(out[t], (63 - t) * 3);
    EXPECT_EQ(out[64 + t], t / 32 * 32 + (t % 32 + 5) % 32);
    EXPECT_EQ(out[128 + t], (t ^ 3) + 7);
  }
  EXPECT_EQ(out[192], 64u);
  EXPECT_EQ(out[193], 0xffffffffu);
}

}  // namespace
