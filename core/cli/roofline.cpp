#include "cli/roofline.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include <turbo/kernel/cpu_isa.hpp>

#include "base/clock.h"
#include "base/machine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace turbo::cli {
namespace {

// Pages of its own, touched by nobody else.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes) : bytes_(bytes) {
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return;
    data_ = static_cast<uint8_t*>(mapped);
    madvise(data_, bytes, MADV_HUGEPAGE);  // as the weights have it
  }
  ~Buffer() {
    if (data_) munmap(data_, bytes_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  uint64_t bytes_;
};

// Runs `body(thread)` on all threads at once; seconds from the common start to the last end.
double timed(uint32_t threads, const std::function<void(uint32_t)>& body) {
  std::atomic<uint32_t> ready{0};
  std::atomic<bool> go{false};
  std::vector<std::thread> others;
  for (uint32_t t = 1; t < threads; ++t)
    others.emplace_back([&, t] {
      ready.fetch_add(1);
      while (!go.load()) std::this_thread::yield();
      body(t);
    });
  while (ready.load() + 1 < threads) std::this_thread::yield();
  const uint64_t begin = now_ns();
  go.store(true);
  body(0);
  for (std::thread& other : others) other.join();
  return seconds(now_ns() - begin);
}

// Eight streams of 64 bytes, so that no addition waits for another.
uint64_t read_all(const uint8_t* from, uint64_t bytes) {
  using Line = uint64_t __attribute__((vector_size(64)));
  Line sum[4] = {};
  const Line* line = reinterpret_cast<const Line*>(from);
  for (uint64_t i = 0; i + 4 <= bytes / sizeof(Line); i += 4)
    for (int k = 0; k < 4; ++k) sum[k] += line[i + k];
  const Line all = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  uint64_t total = 0;
  for (int k = 0; k < 8; ++k) total += all[k];
  return total;
}

double read_speed(const Buffer& buffer, uint64_t bytes, uint32_t threads, int reps) {
  const uint64_t share = bytes / threads / 4096 * 4096;
  double best = 1e30;
  for (int i = 0; i < reps; ++i)
    best = std::min(best, timed(threads, [&](uint32_t t) {
                      volatile uint64_t kept = read_all(buffer.data() + t * share, share);
                      (void)kept;
                    }));
  return static_cast<double>(share * threads) / best * 1e-9;
}

struct DotKernel {
  const char* name = "";
  uint64_t macs_per_round = 0;
  void (*run)(uint64_t rounds) = nullptr;
};

#if defined(__x86_64__)
// Sixteen sums in registers: more than latency x throughput of any of these instructions needs.
__attribute__((target("avx512f,avx512vnni"))) void dot_512(uint64_t rounds) {
  __m512i sum[16];
  for (auto& s : sum) s = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(1);
  for (uint64_t i = 0; i < rounds; ++i) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
    for (int k = 0; k < 16; ++k) sum[k] = _mm512_dpbusd_epi32(sum[k], a, b);
  }
  for (auto& s : sum) __asm__ volatile("" ::"v"(s));
}
__attribute__((target("avx2"))) void dot_256(uint64_t rounds) {
  __m256i sum[8];
  for (auto& s : sum) s = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(1);
  const __m256i ones = _mm256_set1_epi16(1);
  for (uint64_t i = 0; i < rounds; ++i)
#pragma GCC unroll 8
    for (int k = 0; k < 8; ++k) {
      __asm__ volatile("" : "+x"(a), "+x"(b));
      sum[k] = _mm256_add_epi32(sum[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  for (auto& s : sum) __asm__ volatile("" ::"x"(s));
}
#endif

DotKernel dot_kernel() {
#if defined(__x86_64__)
  const CpuIsa isa = choose_cpu_isa().isa;
  if (isa == CpuIsa::avx512) return {"vpdpbusd, 512 bits", 16 * 64, dot_512};
  if (isa == CpuIsa::avx2) return {"vpmaddubsw + vpmaddwd, 256 bits", 8 * 32, dot_256};
#endif
  return {};
}

}  // namespace

Roofline measure_roofline(uint32_t threads, bool thorough) {
  Roofline roofline;
  roofline.threads = std::max(1u, threads);
  const uint64_t bytes = std::max<uint64_t>(uint64_t{32} << 20, std::min<uint64_t>(uint64_t{512} << 20, available_memory_bytes() / 4));
  const Buffer buffer(bytes);
  if (!buffer.data()) return roofline;
  std::fill_n(buffer.data(), bytes, uint8_t{1});
  roofline.read_gb_s = read_speed(buffer, bytes, roofline.threads, thorough ? 9 : 4);
  if (!thorough) return roofline;
  roofline.read_gb_s_one_thread = roofline.threads == 1 ? roofline.read_gb_s : read_speed(buffer, bytes, 1, 5);
  const DotKernel kernel = dot_kernel();
  if (!kernel.run) return roofline;
  roofline.dot_instruction = kernel.name;
  constexpr uint64_t kRounds = 4'000'000;
  for (int i = 0; i < 5; ++i) {
    const double took = timed(roofline.threads, [&](uint32_t) { kernel.run(kRounds); });
    roofline.dot_gmac_s = std::max(roofline.dot_gmac_s, static_cast<double>(kRounds * kernel.macs_per_round * roofline.threads) / took * 1e-9);
  }
  return roofline;
}

}  // namespace turbo::cli
