// What kernels may use of a GPU, under one name on every platform: AMD (RDNA, wave32), NVIDIA, and the CPU, where each
// lane is a fiber (TB_FIBER, fiber.hpp). Kernels include no vendor header.
//
//   TB_KERNEL(name, Args, THREADS) { ... }   a kernel; `args` is its argument struct, THREADS the most of a block
//   TB_DEVICE                                a function of kernels, always inlined
//   TB_KERNEL_EARLY(name, Args, THREADS, WAVES, BLOCKS)  a kernel that may begin before those enqueued ahead of it have ended: until
//                                            it calls wait_for_previous() it reads nothing that a kernel of the same step
//                                            writes, but for the step's table, and writes nothing. An AMD SIMD shall hold WAVES waves of it, an
//                                            NVIDIA SM BLOCKS blocks, which bounds registers
//   TB_SHARED(type, name)                    block-shared variable, type may be an array type: using T = float[32];
//   TB_DYNAMIC_SHARED(type, name)            pointer to the launch's dynamic shared memory
//
// Numbers: compiled without contraction and without fast math; fmadd() is asked for by name, so every instantiation of a
// template has the same rounding and a row's bits do not depend on how many rows are computed beside it.
// Every wave operation is executed by all 32 lanes of a wave: never under a condition that differs between lanes.
// Address rule: an address that is computed is an address that is valid, also in lanes that are switched off.
#pragma once

#include <stdint.h>

#if defined(TB_FIBER)
#include <turbo/kernel/gpu/fiber.hpp>
#elif defined(__CUDACC__) && !defined(__HIP__)
#define TB_NVIDIA 1
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#else
#define TB_AMD 1
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>
#endif

namespace turbo::gpu {
constexpr uint32_t kWave = 32;
constexpr uint32_t kAllLanes = 0xffffffffu;
struct alignas(16) Words4 { uint32_t x, y, z, w; };
struct alignas(8) Words2 { uint32_t x, y; };
struct alignas(16) Float4 { float x, y, z, w; };
struct alignas(8) Float2 { float x, y; };
}  // namespace turbo::gpu

#if !defined(TB_FIBER)

#define TB_DEVICE __device__ __forceinline__
/// A part of a large kernel, with registers of its own where these are few.
#if defined(TB_NVIDIA)
#define TB_PART __device__ __noinline__
#else
#define TB_PART TB_DEVICE
#endif
#if defined(TB_AMD)
#define TB_KERNEL_EARLY(name, Args, THREADS, WAVES, BLOCKS) \
  extern "C" __global__ __attribute__((amdgpu_waves_per_eu(WAVES))) void __launch_bounds__(THREADS) name(const Args args)
#else
#define TB_KERNEL_EARLY(name, Args, THREADS, WAVES, BLOCKS) \
  extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) name(const __grid_constant__ Args args)
#endif
#if defined(TB_NVIDIA)
// A launch may begin while the one before it still runs (programmatic dependent launch), so each kernel first waits.
#define TB_WAITING_KERNEL(name, Args, BOUNDS)                        \
  static __device__ __forceinline__ void tb_body_##name(const Args& args); \
  extern "C" __global__ void BOUNDS name(const __grid_constant__ Args args) { \
    turbo::gpu::let_next_begin();                                    \
    turbo::gpu::wait_for_previous();                                 \
    tb_body_##name(args);                                               \
  }                                                                  \
  static __device__ __forceinline__ void tb_body_##name(const Args& args)
#define TB_KERNEL(name, Args, THREADS) TB_WAITING_KERNEL(name, Args, __launch_bounds__(THREADS))
#else
#define TB_KERNEL(name, Args, THREADS) extern "C" __global__ void __launch_bounds__(THREADS) name(const Args args)
#endif
/// A kernel whose blocks wait for each other: at most one on a compute unit is asked for.
#if defined(TB_NVIDIA)
#define TB_RESIDENT_KERNEL(name, Args, THREADS) \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ Args args)
#else
#define TB_RESIDENT_KERNEL(name, Args, THREADS) TB_KERNEL(name, Args, THREADS)
#endif
#define TB_SHARED(type, name) __shared__ type name
#define TB_DYNAMIC_SHARED(type, name)                          \
  extern __shared__ __attribute__((aligned(16))) uint8_t tb_dynamic_shared[]; \
  type* const name = reinterpret_cast<type*>(tb_dynamic_shared)
#define TB_UNROLL _Pragma("unroll")
#define TB_NO_UNROLL _Pragma("unroll 1")

#if defined(TB_AMD) && defined(__HIP_DEVICE_COMPILE__) && defined(__AMDGCN_WAVEFRONT_SIZE__)
static_assert(__AMDGCN_WAVEFRONT_SIZE__ == 32, "kernels are written for wave32");
#endif

namespace turbo::gpu {

TB_DEVICE uint32_t thread() { return threadIdx.x; }
TB_DEVICE uint32_t threads() { return blockDim.x; }
TB_DEVICE uint32_t lane() { return threadIdx.x & 31; }
TB_DEVICE uint32_t wave() { return threadIdx.x >> 5; }
TB_DEVICE uint32_t block_x() { return blockIdx.x; }
TB_DEVICE uint32_t block_y() { return blockIdx.y; }
TB_DEVICE uint32_t block_z() { return blockIdx.z; }
TB_DEVICE uint32_t grid_x() { return gridDim.x; }
TB_DEVICE uint32_t grid_y() { return gridDim.y; }
TB_DEVICE uint32_t grid_z() { return gridDim.z; }
TB_DEVICE void sync_block() { __syncthreads(); }

TB_DEVICE float fmadd(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
TB_DEVICE uint32_t bits(float v) { return __builtin_bit_cast(uint32_t, v); }
TB_DEVICE float from_bits(uint32_t v) { return __builtin_bit_cast(float, v); }

#if defined(TB_NVIDIA)
template <typename T> TB_DEVICE T shuffle(T v, uint32_t from) { return __shfl_sync(kAllLanes, v, static_cast<int>(from)); }
template <typename T> TB_DEVICE T shuffle_xor(T v, uint32_t mask) { return __shfl_xor_sync(kAllLanes, v, static_cast<int>(mask)); }
TB_DEVICE uint32_t ballot(bool p) { return __ballot_sync(kAllLanes, p); }
TB_DEVICE void sync_wave() { __syncwarp(); }
TB_DEVICE int32_t dot4(uint32_t a, uint32_t b, int32_t c) { return __dp4a(static_cast<int>(a), static_cast<int>(b), c); }
TB_DEVICE float half_to_float(uint16_t h) { return __half2float(__ushort_as_half(h)); }
TB_DEVICE uint16_t float_to_half(float f) { return __half_as_ushort(__float2half_rn(f)); }
/// Weights that are read once a step: do not keep them in the near cache.
TB_DEVICE Words4 load_stream(const Words4* p) {
  Words4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
TB_DEVICE uint16_t load_stream(const uint16_t* p) {
  uint16_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
TB_DEVICE void prefetch_far(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
/// Relaxed at device scope: seen by, and sees, other blocks.
TB_DEVICE uint32_t load_shared_word(const uint32_t* p) { uint32_t v; asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory"); return v; }
TB_DEVICE uint64_t load_shared_word(const uint64_t* p) { unsigned long long v; asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory"); return v; }
TB_DEVICE void store_shared_word(uint32_t* p, uint32_t v) { asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory"); }
TB_DEVICE void store_shared_word(uint64_t* p, uint64_t v) { asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(p), "l"(static_cast<unsigned long long>(v)) : "memory"); }
/// Orders this thread's accesses before and after it for the whole device, both ways.
TB_DEVICE void fence_device() { __threadfence(); }
TB_DEVICE uint32_t atomic_add(uint32_t* p, uint32_t v) { return ::atomicAdd(p, v); }
TB_DEVICE uint32_t atomic_or(uint32_t* p, uint32_t v) { return ::atomicOr(p, v); }
TB_DEVICE uint64_t atomic_max(uint64_t* p, uint64_t v) { return ::atomicMax(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v)); }
TB_DEVICE void pause() { __nanosleep(20); }
/// Of the compute unit; for measuring.
TB_DEVICE uint64_t clock_now() { return static_cast<uint64_t>(clock64()); }
/// The next kernel of the stream may take what this one leaves free of the device.
TB_DEVICE void let_next_begin() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Until everything enqueued before has ended and its writes are seen.
TB_DEVICE void wait_for_previous() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
#else  // AMD
// permlanex16 moves behind a narrowed exec mask in compilers before mid 2025; ds_swizzle does not.
template <typename T> TB_DEVICE T shuffle(T v, uint32_t from) { return __shfl(v, static_cast<int>(from), 32); }
template <typename T> TB_DEVICE T shuffle_xor(T v, uint32_t mask) { return __shfl_xor(v, static_cast<int>(mask), 32); }
TB_DEVICE uint32_t ballot(bool p) { return static_cast<uint32_t>(__ballot(p)); }
// The fences are for the compiler, which may else move shared memory accesses of different addresses past each other.
TB_DEVICE void sync_wave() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}
TB_DEVICE int32_t dot4(uint32_t a, uint32_t b, int32_t c) {
#if defined(__gfx1100__) || defined(__gfx1101__) || defined(__gfx1102__) || defined(__gfx1103__) || defined(__gfx1150__) || defined(__gfx1151__)
  return __builtin_amdgcn_sudot4(true, static_cast<int>(a), true, static_cast<int>(b), c, false);
#elif defined(__gfx1030__) || defined(__gfx1031__) || defined(__gfx1032__) || defined(__gfx1033__) || defined(__gfx1034__) || defined(__gfx1035__) || defined(__gfx1036__)
  return __builtin_amdgcn_sdot4(static_cast<int>(a), static_cast<int>(b), c, false);
#else
  for (int i = 0; i < 4; ++i) c += static_cast<int8_t>(a >> (8 * i)) * static_cast<int8_t>(b >> (8 * i));
  return c;
#endif
}
TB_DEVICE float half_to_float(uint16_t h) { return static_cast<float>(__builtin_bit_cast(_Float16, h)); }
TB_DEVICE uint16_t float_to_half(float f) { return __builtin_bit_cast(uint16_t, static_cast<_Float16>(f)); }
TB_DEVICE Words4 load_stream(const Words4* p) {
  typedef uint32_t vector __attribute__((ext_vector_type(4)));
  // Told to be global: clang 19 loses that of addresses that were selected, and flat loads wait for shared memory too.
  const vector v = __builtin_nontemporal_load((const __attribute__((address_space(1))) vector*)(p));
  return {v.x, v.y, v.z, v.w};
}
TB_DEVICE uint16_t load_stream(const uint16_t* p) { return __builtin_nontemporal_load((const __attribute__((address_space(1))) uint16_t*)(p)); }
TB_DEVICE void prefetch_far(const void*) {}
TB_DEVICE uint32_t load_shared_word(const uint32_t* p) { return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
TB_DEVICE uint64_t load_shared_word(const uint64_t* p) { return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
TB_DEVICE void store_shared_word(uint32_t* p, uint32_t v) { __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
TB_DEVICE void store_shared_word(uint64_t* p, uint64_t v) { __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
TB_DEVICE void fence_device() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "agent"); }
/// Of shared memory, as the block's waves see it.
TB_DEVICE uint32_t load_block_word(const uint32_t* p) { return __hip_atomic_load(p, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }
TB_DEVICE void store_block_word(uint32_t* p, uint32_t v) { __hip_atomic_store(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_WORKGROUP); }
TB_DEVICE void fence_block() { __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup"); }
TB_DEVICE uint32_t atomic_add(uint32_t* p, uint32_t v) { return __hip_atomic_fetch_add(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
TB_DEVICE uint32_t atomic_or(uint32_t* p, uint32_t v) { return __hip_atomic_fetch_or(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
TB_DEVICE uint64_t atomic_max(uint64_t* p, uint64_t v) { return __hip_atomic_fetch_max(p, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
TB_DEVICE void pause() { __builtin_amdgcn_s_sleep(1); }
TB_DEVICE uint64_t clock_now() { return __builtin_readcyclecounter(); }
TB_DEVICE void let_next_begin() {}
TB_DEVICE void wait_for_previous() {}
#endif

}  // namespace turbo::gpu
#endif  // !TB_FIBER

namespace turbo::gpu {

TB_DEVICE uint32_t min_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
TB_DEVICE float max_of(float a, float b) { return a < b ? b : a; }

/// Sum over the wave, the same bits in every lane: pairs at distance 16, 8, 4, 2, 1.
TB_DEVICE float wave_sum(float v) {
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) v += shuffle_xor(v, m);
  return v;
}
TB_DEVICE float wave_max(float v) {
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) v = max_of(v, shuffle_xor(v, m));
  return v;
}
TB_DEVICE int32_t wave_sum(int32_t v) {
  TB_UNROLL
  for (uint32_t m = kWave / 2; m; m >>= 1) v += shuffle_xor(v, m);
  return v;
}

/// Sum over the block, the same bits in every thread: each wave's sum, then the waves in rising order. `slots` is shared
/// memory of one float a wave; a barrier must lie between two uses of the same slots.
TB_DEVICE float block_sum(float v, float* slots, uint32_t n_waves) {
  v = wave_sum(v);
  if (lane() == 0) slots[wave()] = v;
  sync_block();
  float sum = 0;
  for (uint32_t w = 0; w < n_waves; ++w) sum += slots[w];
  return sum;
}

/// A number that need not take a scalar register, of which there are too few.
TB_DEVICE uint32_t in_lanes(uint32_t v) {
#if defined(TB_AMD) && defined(__HIP_DEVICE_COMPILE__)
  asm("" : "+v"(v));
#endif
  return v;
}

}  // namespace turbo::gpu
