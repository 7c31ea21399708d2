// The fiber runtime: what it runs, when, and what it finds.
#include "fixture.h"

namespace turbo::hip {
namespace {

constexpr uint32_t kN = 100;

// a + b on the device, four steps: copies in, a fill, the kernel, a copy out.
struct Sum {
  explicit Sum(FiberBench& bench)
      : bench(bench), in(bench.pinned(2 * kN * sizeof(float))), out(bench.pinned(kN * sizeof(float))), a(bench.on_device(kN * sizeof(float))),
        b(bench.on_device(kN * sizeof(float))), sum(bench.on_device(kN * sizeof(float))) {
    set(1);
  }
  void set(float scale) {
    for (uint32_t i = 0; i < kN; ++i) {
      in.get<float>()[i] = static_cast<float>(i) * scale;
      in.get<float>()[kN + i] = scale;
    }
  }
  void enqueue() {
    Runtime& runtime = bench.runtime();
    runtime.copy(bench.stream(), a.get(), in.get(), a.bytes(), TURBO_COPY_TO_DEVICE);
    runtime.copy(bench.stream(), b.get(), in.get<float>() + kN, b.bytes(), TURBO_COPY_TO_DEVICE);
    runtime.fill(bench.stream(), sum.get(), 0, sum.bytes());
    bench.launch("test_add", AddArgs{a.get<float>(), b.get<float>(), sum.get<float>(), kN - 1, 0}, 2, 64);
    runtime.copy(bench.stream(), out.get(), sum.get(), sum.bytes(), TURBO_COPY_TO_HOST);
  }
  std::vector<float> result() {
    bench.runtime().sync(bench.stream());
    return {out.get<float>(), out.get<float>() + kN};
  }
  static std::vector<float> expected(float scale) {
    std::vector<float> all(kN);
    for (uint32_t i = 0; i + 1 < kN; ++i) all[i] = static_cast<float>(i) * scale + scale;
    return all;
  }
  FiberBench& bench;
  DeviceMemory in, out, a, b, sum;
};

TEST(Fiber, ReplayGivesWhatEagerGives) {
  for (const char* defer : {"0", "1"}) {
    const ScopedEnv late("TURBO_FIBER_DEFER", defer);
    FiberBench bench;
    Sum sum(bench);
    sum.enqueue();
    EXPECT_EQ(sum.result(), Sum::expected(1));
    std::fill_n(sum.out.get<float>(), kN, -1.f);
    bench.runtime().begin_capture(bench.stream());
    sum.enqueue();
    Runtime::Graph* const graph = bench.runtime().end_capture();
    EXPECT_EQ(bench.runtime().graph_nodes(graph), 5u);
    EXPECT_EQ(sum.result(), std::vector<float>(kN, -1.f)) << "recording runs nothing";
    for (const float scale : {2.f, 0.5f}) {
      sum.set(scale);
      bench.runtime().launch_graph(bench.stream(), graph);
      EXPECT_EQ(sum.result(), Sum::expected(scale)) << "a replay reads what the addresses hold now";
    }
    bench.runtime().destroy_graph(graph);
  }
  EXPECT_EQ(check_fiber_memory(), "");
}

TEST(Fiber, DeferredWorkSeesPinnedMemoryAsLateAsAGpuMay) {
  const ScopedEnv late("TURBO_FIBER_DEFER", "1");
  FiberBench bench;
  Sum sum(bench);
  sum.enqueue();
  sum.set(3);  // too early: the stream has not passed the copies
  EXPECT_EQ(sum.result(), Sum::expected(3));
}

// A wait that has nothing to wait for is none, so every kind of work must say that there is something again.
TEST(Fiber, EveryKindOfWorkIsWaitedFor) {
  const ScopedEnv late("TURBO_FIBER_DEFER", "1");
  FiberBench bench;
  Sum sum(bench);
  Runtime& runtime = bench.runtime();
  turbo_stream *const stream = bench.stream(), *const second = runtime.create_stream();
  Runtime::Event* const event = runtime.create_event(false);
  runtime.begin_capture(stream);
  sum.enqueue();
  Runtime::Graph* const graph = runtime.end_capture();
  runtime.sync(stream);
  const auto waited_for = [&](const char* what, auto&& enqueue) {
    SCOPED_TRACE(what);
    EXPECT_FALSE(stream->busy);
    enqueue();
    EXPECT_TRUE(stream->busy);
    runtime.sync(stream);
  };
  waited_for("copy", [&] { runtime.copy(stream, sum.a.get(), sum.in.get(), sum.a.bytes(), TURBO_COPY_TO_DEVICE); });
  waited_for("fill", [&] { runtime.fill(stream, sum.sum.get(), 0, sum.sum.bytes()); });
  waited_for("launch", [&] { bench.launch("test_add", AddArgs{sum.a.get<float>(), sum.b.get<float>(), sum.sum.get<float>(), kN - 1, 0}, 2, 64); });
  waited_for("graph", [&] { runtime.launch_graph(stream, graph); });
  EXPECT_EQ(std::vector<float>(sum.out.get<float>(), sum.out.get<float>() + kN), Sum::expected(1));
  waited_for("another stream's event", [&] {
    runtime.fill(second, sum.sum.get(), 7, sum.sum.bytes());
    runtime.record(event, second);
    runtime.wait(stream, event);
  });
  EXPECT_TRUE(runtime.done(event));
  EXPECT_FALSE(stream->busy);
  runtime.destroy_graph(graph);
  runtime.destroy_event(event);
  runtime.destroy_stream(second);
}

TEST(Fiber, WhatAGraphCannotHoldIsRefusedWhileRecording) {
  FiberBench bench;
  Sum sum(bench);
  turbo_stream* const other = bench.runtime().create_stream();
  bench.runtime().begin_capture(bench.stream());
  EXPECT_TRUE(bench.runtime().capturing());
  failure(TURBO_INVALID_ARGUMENT, [&] { bench.pinned(16); });
  failure(TURBO_INVALID_ARGUMENT, [&] { bench.runtime().sync(bench.stream()); });
  failure(TURBO_INVALID_ARGUMENT, [&] { bench.device->load(turbo_kernels_kernels, turbo_n_kernels_kernels); });
  failure(TURBO_INVALID_ARGUMENT, [&] { bench.runtime().begin_capture(bench.stream()); });
  failure(TURBO_INVALID_ARGUMENT, [&] { bench.runtime().fill(other, sum.a.get(), 0, 4); });
  bench.runtime().drop_capture();
  EXPECT_FALSE(bench.runtime().capturing());
  failure(TURBO_INVALID_ARGUMENT, [&] { bench.runtime().end_capture(); });
  sum.enqueue();
  EXPECT_EQ(sum.result(), Sum::expected(1)) << "usable after a dropped recording";
  bench.runtime().destroy_stream(other);
}

TEST(Fiber, BrokenLaunchesAreRefusedByName) {
  FiberBench bench;
  const DeviceMemory out = bench.on_device(4096);
  const SharedArgs args{out.get<uint32_t>()};
  const auto refused = [&](auto&& body) { return failure(TURBO_INVALID_ARGUMENT, body); };
  EXPECT_TRUE(contains(refused([&] { bench.launch("test_shared", args, 1, 33); }), "kernel test_shared (1x1x1 blocks of 33 threads)"));
  EXPECT_TRUE(contains(refused([&] { bench.launch("test_shared", args, 1, 96); }), "at most 64"));
  EXPECT_TRUE(contains(refused([&] { bench.launch("test_shared", args, 1, 64, 65537); }), "65537 + 0 bytes of shared memory; the device has 65536"));
  EXPECT_TRUE(contains(refused([&] { bench.launch("test_shared", AddArgs{}, 1, 64); }), "its struct has 8 bytes, but 32 were given"));
  EXPECT_TRUE(contains(refused([&] { bench.launch("test_meet", MeetArgs{out.get<uint32_t>()}, 9, 32, 0, true); }), "the device holds 8 of them"));
  failure(TURBO_NOT_FOUND, [&] { bench.kernel("test_none"); });
  bench.launch("test_shared", args, 0, 64);  // no blocks: nothing to do
  bench.launch("test_shared", args, 3, 64, 256);
  EXPECT_EQ(out.get<uint32_t>()[2], 64u);
}

TEST(Fiber, ResidentBlocksRunTogether) {
  FiberBench bench;
  const DeviceMemory counter = bench.on_device(4);
  bench.runtime().fill(bench.stream(), counter.get(), 0, 4);
  bench.launch("test_meet", MeetArgs{counter.get<uint32_t>()}, 8, 32, 0, true);
  EXPECT_EQ(counter.get<uint32_t>()[0], 8u);
#if !defined(__SANITIZE_ADDRESS__)  // it takes the unwinding of a fiber for an overflow
  bench.runtime().fill(bench.stream(), counter.get(), 0, 4);
  EXPECT_TRUE(contains(failure(TURBO_INTERNAL, [&] { bench.launch("test_meet", MeetArgs{counter.get<uint32_t>()}, 8, 32); }), "kernel test_meet"));
#endif
}

TEST(Fiber, AnInjectedFailureIsThatOfOneLaunch) {
  const ScopedEnv fails("TURBO_FIBER_FAIL", "launch:2");
  FiberBench bench;
  Sum sum(bench);
  sum.enqueue();
  EXPECT_TRUE(contains(failure(TURBO_INTERNAL, [&] { sum.enqueue(); }), "kernel test_add: injected failure"));
  EXPECT_FALSE(bench.runtime().lost());
  sum.enqueue();
  EXPECT_EQ(sum.result(), Sum::expected(1));
}

TEST(Fiber, ALostDeviceStaysLostAndIsLeftQuietly) {
  const ScopedEnv fails("TURBO_FIBER_FAIL", "alloc:900,lost:2");
  const uint64_t before = fiber_memory_in_use();
  {
    FiberBench bench;
    Sum sum(bench);
    bench.runtime().begin_capture(bench.stream());
    sum.enqueue();
    Runtime::Graph* const graph = bench.runtime().end_capture();
    bench.runtime().launch_graph(bench.stream(), graph);
    EXPECT_TRUE(contains(failure(TURBO_DEVICE_LOST, [&] { bench.runtime().launch_graph(bench.stream(), graph); }), "kernel test_add: launch failure"));
    EXPECT_TRUE(bench.runtime().lost());
    const turbo_device& table = *bench.device->table();
    turbo_error error = fresh_error();
    EXPECT_EQ(table.sync(table.ctx, table.stream, &error), TURBO_DEVICE_LOST);
    EXPECT_TRUE(contains(error.message, "the device was lost: launch: kernel test_add"));
    EXPECT_EQ(table.fill(table.ctx, table.stream, sum.a.get(), 0, 4, &error), TURBO_DEVICE_LOST);
    EXPECT_EQ(table.allocate(table.ctx, TURBO_MEMORY_DEVICE, 16, "x", &error), nullptr);
    EXPECT_EQ(error.code, TURBO_DEVICE_LOST);
    bench.runtime().destroy_graph(graph);
  }
  EXPECT_EQ(fiber_memory_in_use(), before);
}

TEST(Fiber, SyncModeNamesTheKernelOfDeferredWork) {
  const ScopedEnv late("TURBO_FIBER_DEFER", "1"), each("TURBO_HIP_SYNC", "1"), fails("TURBO_FIBER_FAIL", "lost:1");
  FiberBench bench;
  Sum sum(bench);
  const std::string message = failure(TURBO_DEVICE_LOST, [&] { sum.enqueue(); });
  EXPECT_TRUE(contains(message, "kernel test_add (2x1x1 blocks of 64 threads): launch: kernel test_add: launch failure")) << message;
}

TEST(Fiber, AllocationsCanFailAndAreTold) {
  const ScopedEnv fails("TURBO_FIBER_FAIL", "alloc:2");
  FiberBench bench;
  const DeviceMemory first = bench.on_device(64, "weights");
  const std::string message = failure(TURBO_RESOURCE_EXHAUSTED, [&] { bench.on_device(64, "weights"); });
  EXPECT_TRUE(contains(message, "'weights': allocate: 64 bytes: out of memory")) << message;
  EXPECT_TRUE(contains(message, "4095 of 4096 MiB of the device are free")) << message;
  failure(TURBO_RESOURCE_EXHAUSTED, [&] { bench.on_device(uint64_t{1} << 40); });
  const DeviceMemory third = bench.on_device(64, "weights");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(third.get()) % 256, 0u);
}

TEST(Fiber, CopiesOutsideABlockAndFromPageableMemoryAreRefused) {
  FiberBench bench;
  const DeviceMemory a = bench.on_device(64), p = bench.pinned(64);
  char pageable[64] = {};
  const auto copy = [&](void* dst, const void* src, uint64_t bytes, uint32_t direction) {
    return failure(TURBO_INVALID_ARGUMENT, [&] { bench.runtime().copy(bench.stream(), dst, src, bytes, direction); });
  };
  EXPECT_TRUE(contains(copy(a.get(), pageable, 64, TURBO_COPY_TO_DEVICE), "copy: source: 64 bytes that are not inside one block of pinned"));
  EXPECT_TRUE(contains(copy(a.get<char>() + 1, p.get(), 64, TURBO_COPY_TO_DEVICE), "copy: destination"));
  EXPECT_TRUE(contains(copy(p.get(), a.get(), 65, TURBO_COPY_TO_HOST), "65 bytes"));
  copy(a.get(), p.get(), UINT64_MAX, TURBO_COPY_TO_DEVICE);
  failure(TURBO_INVALID_ARGUMENT, [&] { bench.runtime().fill(bench.stream(), a.get(), 0, 65); });
  bench.runtime().copy(bench.stream(), a.get(), p.get(), 64, TURBO_COPY_TO_DEVICE);
}

#if !defined(__SANITIZE_ADDRESS__)  // which stops at the write itself
TEST(Fiber, CanariesFindAWriteBesideABlock) {
  for (const int64_t index : {int64_t{100}, int64_t{-1}, int64_t{255}}) {
    {
      FiberBench bench;
      const DeviceMemory block = bench.on_device(100);
      bench.launch("test_overrun", OverrunArgs{block.get<uint8_t>(), 99});
      EXPECT_EQ(check_fiber_memory(), "");
      bench.launch("test_overrun", OverrunArgs{block.get<uint8_t>(), index});
      EXPECT_TRUE(contains(check_fiber_memory(), index < 0 ? "memory was written before a block of 100 bytes" : "memory was written behind a block of 100 bytes of device memory"));
    }
    EXPECT_TRUE(contains(check_fiber_memory(), "was written")) << "found again when the block was released";
    EXPECT_EQ(check_fiber_memory(), "");
  }
}
#endif

TEST(Fiber, EventsFollowTheirStreams) {
  for (const char* defer : {"0", "1"}) {
    const ScopedEnv late("TURBO_FIBER_DEFER", defer);
    FiberBench bench;
    Sum sum(bench);
    turbo_stream* const second = bench.runtime().create_stream();
    Runtime::Event *const begin = bench.runtime().create_event(true), *const end = bench.runtime().create_event(true);
    EXPECT_TRUE(bench.runtime().done(end)) << "never recorded: nothing to wait for";
    bench.runtime().record(begin, bench.stream());
    sum.enqueue();
    bench.runtime().record(end, bench.stream());
    EXPECT_EQ(bench.runtime().done(end), *defer == '0');
    const DeviceMemory copy = bench.pinned(kN * sizeof(float));
    bench.runtime().wait(second, end);
    bench.runtime().copy(second, copy.get(), sum.sum.get(), copy.bytes(), TURBO_COPY_TO_HOST);
    bench.runtime().sync(second);
    EXPECT_EQ(std::vector<float>(copy.get<float>(), copy.get<float>() + kN), Sum::expected(1));
    bench.runtime().sync(end);
    EXPECT_TRUE(bench.runtime().done(end));
    EXPECT_GE(bench.runtime().elapsed_ms(begin, end), 0.f);
    bench.runtime().destroy_event(begin);
    bench.runtime().destroy_event(end);
    bench.runtime().destroy_stream(second);
  }
}

}  // namespace
}  // namespace turbo::hip
