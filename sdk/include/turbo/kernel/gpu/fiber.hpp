// The platform of device.hpp on a CPU: each thread of a block is a fiber, wave operations and barriers are meeting
// points. For tests: the kernels that run on a GPU run here under sanitizers, at the speed of an interpreter.
//
// Found and told as FiberFault: wave operations that not all lanes of a wave reach, barriers that not all threads reach,
// shuffles from lanes that do not exist, waits without end. Blocks run one after another, or all at once when the launch
// says `resident`. One launch at a time in a thread; kernels may be launched from several threads at once.
#pragma once

#include <algorithm>
#include <boost/context/fiber.hpp>
#include <boost/context/pooled_fixedsize_stack.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

// Sanitizers must be told of every change of stacks, or they take a throw in a fiber for a smashed stack.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TB_FIBER_ASAN 1
#elif __has_feature(thread_sanitizer)
#define TB_FIBER_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define TB_FIBER_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define TB_FIBER_TSAN 1
#endif
#if defined(TB_FIBER_ASAN)
#include <sanitizer/common_interface_defs.h>
#elif defined(TB_FIBER_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#define TB_DEVICE inline
#define TB_PART inline
#define TB_UNROLL
#define TB_NO_UNROLL
#define TB_KERNEL(name, Args, THREADS)                                                                      \
  static void name(const Args& args);                                                                       \
  static const ::turbo::gpu::fiber::Kernel tb_entry_##name{#name, THREADS, sizeof(Args), [](const void* p) { \
                                                             name(*static_cast<const Args*>(p));             \
                                                           }};                                              \
  static void name(const Args& args)
#define TB_KERNEL_EARLY(name, Args, THREADS, WAVES, BLOCKS) TB_KERNEL(name, Args, THREADS)
#define TB_RESIDENT_KERNEL(name, Args, THREADS) TB_KERNEL(name, Args, THREADS)
#define TB_SHARED(type, name)                 \
  static const char tb_key_##name = 0;        \
  type& name = *static_cast<type*>(::turbo::gpu::fiber::shared_variable(&tb_key_##name, sizeof(type)))
#define TB_DYNAMIC_SHARED(type, name) type* const name = reinterpret_cast<type*>(::turbo::gpu::fiber::dynamic_shared())

namespace turbo::gpu::fiber {

struct FiberFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Kernel;
inline void run(const Kernel& kernel, const uint32_t (&grid)[3], uint32_t threads, uint32_t shared_bytes, const void* args, bool resident);

/// A kernel of this library; a static object links itself into the library's list.
struct Kernel {
  const char* name;
  uint32_t max_threads;
  uint32_t argument_bytes;
  void (*run)(const void* args);  // one lane
  const Kernel* next;
  /// fiber::run of the library that holds the kernel: what its lanes ask about themselves is that library's own, so
  /// another library must launch through this.
  void (*launch)(const Kernel& kernel, const uint32_t (&grid)[3], uint32_t threads, uint32_t shared_bytes, const void* args, bool resident);

  Kernel(const char* name, uint32_t max_threads, size_t argument_bytes, void (*run)(const void*))
      : name(name), max_threads(max_threads), argument_bytes(static_cast<uint32_t>(argument_bytes)), run(run), next(first()),
        launch(&fiber::run) {
    first() = this;
  }
  static const Kernel*& first() {
    static const Kernel* list = nullptr;
    return list;
  }
  static const Kernel* find(const Kernel* list, const std::string& wanted) {
    for (; list; list = list->next)
      if (wanted == list->name) return list;
    return nullptr;
  }
};

enum class Meeting : uint32_t { none, shuffle, ballot, wave, block };

struct WaveState {
  uint64_t given[32], taken[32];
  uint32_t arrived = 0, generation = 0;
  Meeting kind = Meeting::none;
};

struct BlockState {
  uint32_t index[3];
  uint32_t alive = 0, arrived = 0, generation = 0;
  std::vector<WaveState> waves;
  std::vector<std::pair<const void*, std::unique_ptr<uint64_t[]>>> variables;
  std::unique_ptr<uint64_t[]> dynamic;
};

/// A stack as the sanitizers know it.
struct Stack {
  const void* bottom = nullptr;
  size_t bytes = 0;
  void* kept = nullptr;  // what the sanitizer keeps while the stack is left

#if defined(TB_FIBER_ASAN)
  void leave_for(const Stack& next, bool forever = false) { __sanitizer_start_switch_fiber(forever ? nullptr : &kept, next.bottom, next.bytes); }
  void entered(Stack* from = nullptr) { __sanitizer_finish_switch_fiber(kept, from ? &from->bottom : nullptr, from ? &from->bytes : nullptr); }
  void begin(bool) {}
  void end() {}
#elif defined(TB_FIBER_TSAN)
  void leave_for(const Stack& next, bool = false) { __tsan_switch_to_fiber(next.kept, 0); }
  void entered(Stack* = nullptr) {}
  void begin(bool own) { kept = own ? __tsan_create_fiber(0) : __tsan_get_current_fiber(); }
  void end() { __tsan_destroy_fiber(kept); }
#else
  void leave_for(const Stack&, bool = false) {}
  void entered(Stack* = nullptr) {}
  void begin(bool) {}
  void end() {}
#endif
};

struct Lane {
  boost::context::fiber fiber;
  BlockState* block = nullptr;
  uint32_t thread = 0;
  bool done = false;
  Stack stack;
};

struct Launch {
  uint32_t grid[3], threads;
  boost::context::fiber scheduler;
  Lane* lane = nullptr;
  uint64_t progress = 0, pauses = 0;
  std::exception_ptr failure;
  bool unwinding = false;
  Stack stack;  // the scheduler's
};

/// Thrown through a kernel whose launch has failed elsewhere.
struct Unwind {};

/// Memory of a lane's stack, which tells the lane where it lies.
struct LaneStack {
  Lane* lane;
#if defined(TB_FIBER_ASAN) || defined(TB_FIBER_TSAN)
  static constexpr size_t kBytes = 256 * 1024;
#else
  static constexpr size_t kBytes = 64 * 1024;
#endif
  // A stack that was used before has its pages: making one anew costs more than what most lanes compute.
  static boost::context::pooled_fixedsize_stack& memory() {
    static thread_local boost::context::pooled_fixedsize_stack pool(kBytes);
    return pool;
  }
  boost::context::stack_context allocate() {
    const boost::context::stack_context context = memory().allocate();
    lane->stack.bottom = static_cast<const char*>(context.sp) - context.size;
    lane->stack.bytes = context.size;
    return context;
  }
  void deallocate(boost::context::stack_context& context) noexcept { memory().deallocate(context); }
};

inline thread_local Launch* launch_now = nullptr;

inline void yield() {
  Launch& launch = *launch_now;
  Lane* const lane = launch.lane;
  lane->stack.leave_for(launch.stack);
  launch.scheduler = std::move(launch.scheduler).resume();
  lane->stack.entered();
  launch.lane = lane;
  if (launch.unwinding) throw Unwind{};
}

/// Let a lane run until it waits or ends.
inline void resume(Launch& launch, Lane& lane) {
  launch.lane = &lane;
  launch.stack.leave_for(lane.stack);
  lane.fiber = std::move(lane.fiber).resume();
  launch.stack.entered();
}

inline void* shared_variable(const void* key, size_t bytes) {
  BlockState& block = *launch_now->lane->block;
  for (auto& [known, memory] : block.variables)
    if (known == key) return memory.get();
  // Contents of shared memory are undefined at the start: a pattern shows who relies on zeros.
  const size_t words = (bytes + 15) / 8;
  block.variables.emplace_back(key, std::make_unique<uint64_t[]>(words));
  std::memset(block.variables.back().second.get(), 0xa5, words * 8);
  return block.variables.back().second.get();
}
inline void* dynamic_shared() { return launch_now->lane->block->dynamic.get(); }

/// All lanes of the wave meet; what each gave is in the wave's `taken` afterwards.
inline WaveState& meet(Meeting kind, uint64_t given) {
  Launch& launch = *launch_now;
  BlockState& block = *launch.lane->block;
  const uint32_t lane = launch.lane->thread % 32;
  WaveState& wave = block.waves[launch.lane->thread / 32];
  if (wave.arrived == 0) wave.kind = kind;
  if (wave.kind != kind) throw FiberFault("divergent wave operation: lane " + std::to_string(lane) + " meets the others in another one");
  wave.given[lane] = given;
  const uint32_t generation = wave.generation;
  if (++wave.arrived == 32) {
    std::copy(std::begin(wave.given), std::end(wave.given), wave.taken);
    wave.arrived = 0;
    ++wave.generation;
    ++launch.progress;
  } else {
    while (wave.generation == generation) yield();
  }
  return wave;
}

inline void meet_block() {
  Launch& launch = *launch_now;
  BlockState& block = *launch.lane->block;
  const uint32_t generation = block.generation;
  if (++block.arrived == launch.threads) {
    block.arrived = 0;
    ++block.generation;
    ++launch.progress;
  } else {
    while (block.generation == generation) yield();
  }
}

/// Run a kernel. Throws FiberFault, or what the kernel threw.
inline void run(const Kernel& kernel, const uint32_t (&grid)[3], uint32_t threads, uint32_t shared_bytes, const void* args, bool resident) {
  if (threads == 0 || threads % 32 != 0 || threads > kernel.max_threads)
    throw FiberFault(std::string(kernel.name) + ": " + std::to_string(threads) + " threads; bounded to " + std::to_string(kernel.max_threads));
  const uint64_t n_blocks = uint64_t{grid[0]} * grid[1] * grid[2];
  const uint64_t at_once = resident ? n_blocks : 1;
  for (uint64_t begin = 0; begin < n_blocks; begin += at_once) {
    Launch launch{{grid[0], grid[1], grid[2]}, threads, {}, nullptr, 0, 0, nullptr, false, {}};
    launch.stack.begin(false);
    std::vector<BlockState> blocks(std::min(at_once, n_blocks - begin));
    std::vector<Lane> lanes(blocks.size() * threads);
    for (uint64_t b = 0; b < blocks.size(); ++b) {
      const uint64_t index = begin + b;
      blocks[b].index[0] = static_cast<uint32_t>(index % grid[0]);
      blocks[b].index[1] = static_cast<uint32_t>(index / grid[0] % grid[1]);
      blocks[b].index[2] = static_cast<uint32_t>(index / grid[0] / grid[1]);
      blocks[b].waves.resize(threads / 32);
      blocks[b].dynamic = std::make_unique<uint64_t[]>(shared_bytes / 8 + 2);
      std::memset(blocks[b].dynamic.get(), 0xa5, shared_bytes);
    }
    for (uint64_t i = 0; i < lanes.size(); ++i) {
      lanes[i].block = &blocks[i / threads];
      lanes[i].thread = static_cast<uint32_t>(i % threads);
      Lane* lane = &lanes[i];
      lanes[i].fiber = boost::context::fiber(std::allocator_arg, LaneStack{lane}, [&launch, &kernel, args, lane](boost::context::fiber&& scheduler) {
        lane->stack.entered(&launch.stack);
        launch.scheduler = std::move(scheduler);
        try {
          if (!launch.unwinding) kernel.run(args);
        } catch (const Unwind&) {
        } catch (...) {
          if (!launch.failure) launch.failure = std::current_exception();
        }
        lane->done = true;
        ++launch.progress;
        lane->stack.leave_for(launch.stack, true);
        return std::move(launch.scheduler);
      });
      lanes[i].stack.begin(true);
    }
    Launch* const outer = launch_now;
    launch_now = &launch;
    uint64_t idle = 0;
    for (bool any = true; any && !launch.failure;) {
      any = false;
      const uint64_t progress = launch.progress, pauses = launch.pauses;
      for (Lane& lane : lanes) {
        if (lane.done) continue;
        any = true;
        resume(launch, lane);
        if (launch.failure) break;
      }
      if (launch.progress != progress) idle = 0;
      else if (++idle > (launch.pauses != pauses ? 100000u : 2u) && any && !launch.failure)
        launch.failure = std::make_exception_ptr(FiberFault(std::string(kernel.name) + ": lanes wait for each other: a wave operation or barrier that not all reach, or a wait without end"));
    }
    // Lanes that still wait leave their kernels by an exception, so that what they hold is given back.
    launch.unwinding = true;
    for (Lane& lane : lanes) {
      while (!lane.done) resume(launch, lane);
      lane.stack.end();
    }
    launch_now = outer;
    if (launch.failure) std::rethrow_exception(launch.failure);
  }
}

}  // namespace turbo::gpu::fiber

namespace turbo::gpu {

inline uint32_t thread() { return fiber::launch_now->lane->thread; }
inline uint32_t threads() { return fiber::launch_now->threads; }
inline uint32_t lane() { return thread() & 31; }
inline uint32_t wave() { return thread() >> 5; }
inline uint32_t block_x() { return fiber::launch_now->lane->block->index[0]; }
inline uint32_t block_y() { return fiber::launch_now->lane->block->index[1]; }
inline uint32_t block_z() { return fiber::launch_now->lane->block->index[2]; }
inline uint32_t grid_x() { return fiber::launch_now->grid[0]; }
inline uint32_t grid_y() { return fiber::launch_now->grid[1]; }
inline uint32_t grid_z() { return fiber::launch_now->grid[2]; }
inline void sync_block() { fiber::meet_block(); }
inline void sync_wave() { fiber::meet(fiber::Meeting::wave, 0); }
inline void let_next_begin() {}
inline void wait_for_previous() {}
inline void pause() {
  ++fiber::launch_now->pauses;
  fiber::yield();
}

template <typename T>
T shuffle(T v, uint32_t from) {
  static_assert(sizeof(T) <= 8);
  if (from >= 32) throw fiber::FiberFault("shuffle from lane " + std::to_string(from));
  uint64_t word = 0;
  std::memcpy(&word, &v, sizeof v);
  const uint64_t got = fiber::meet(fiber::Meeting::shuffle, word).taken[from];
  std::memcpy(&v, &got, sizeof v);
  return v;
}
template <typename T>
T shuffle_xor(T v, uint32_t mask) {
  return shuffle(v, (thread() ^ mask) & 31);
}
inline uint32_t ballot(bool p) {
  const fiber::WaveState& wave = fiber::meet(fiber::Meeting::ballot, p);
  uint32_t mask = 0;
  for (uint32_t i = 0; i < 32; ++i) mask |= static_cast<uint32_t>(wave.taken[i] != 0) << i;
  return mask;
}

inline float fmadd(float a, float b, float c) { return std::fmaf(a, b, c); }
inline uint32_t bits(float v) { return __builtin_bit_cast(uint32_t, v); }
inline float from_bits(uint32_t v) { return __builtin_bit_cast(float, v); }
inline int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return c;
}
inline float half_to_float(uint16_t h) {
  const uint32_t sign = (h & 0x8000u) << 16, exponent = (h >> 10) & 31, fraction = h & 1023;
  if (exponent == 0) {
    const float f = std::ldexp(static_cast<float>(fraction), -24);
    return sign ? -f : f;
  }
  return from_bits(exponent == 31 ? sign | 0x7f800000u | fraction << 13 : sign | (exponent + 112) << 23 | fraction << 13);
}
inline uint16_t float_to_half(float f) {
  const uint32_t x = bits(f), sign = (x >> 16) & 0x8000;
  uint32_t a = x & 0x7fffffff;
  if (a > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
  if (a >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
  if (a < 0x38800000) return static_cast<uint16_t>(sign | static_cast<uint32_t>(std::lrintf(std::fabs(f) * 16777216.f)));
  a -= 0x38000000;
  return static_cast<uint16_t>(sign | ((a + 0xfff + ((a >> 13) & 1)) >> 13));
}

struct Words4;
template <typename T>
T load_stream(const T* p) {
  return *p;
}
inline void prefetch_far(const void*) {}
inline uint32_t load_shared_word(const uint32_t* p) { return *p; }
inline uint64_t load_shared_word(const uint64_t* p) { return *p; }
inline void store_shared_word(uint32_t* p, uint32_t v) { *p = v; }
inline void store_shared_word(uint64_t* p, uint64_t v) { *p = v; }
inline void fence_device() {}
inline uint64_t clock_now() { return fiber::launch_now->progress; }
inline uint32_t load_block_word(const uint32_t* p) { return *p; }
inline void store_block_word(uint32_t* p, uint32_t v) { *p = v; }
inline void fence_block() {}
inline uint32_t atomic_add(uint32_t* p, uint32_t v) { return std::exchange(*p, *p + v); }
inline uint32_t atomic_or(uint32_t* p, uint32_t v) { return std::exchange(*p, *p | v); }
inline uint64_t atomic_max(uint64_t* p, uint64_t v) { return std::exchange(*p, std::max(*p, v)); }

}  // namespace turbo::gpu
