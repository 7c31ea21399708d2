// Attention of one layer on an NVIDIA GPU: microseconds a layer and GB/s of the cache, at the head shapes of 1.7B (16 heads
// on 8), 4B and 8B (32 on 8), behind 0, 250, 4,096 and 32,768 tokens, for 1, 2, 4 and 8 rows; norm, rotary positions and append
// included. First every codec's bits are compared with the same kernels run as fibers. From the source's root:
//   g++ -std=c++20 -O2 -fPIC -shared -fvisibility=hidden -ffp-contract=off -Isdk/include -Iplugins
//     tests/perf/hip_attend/attend_reference.cpp -o libattend_reference.so -lboost_context
//   nvcc -std=c++20 -O3 -arch=sm_90 -fmad=false -Isdk/include -Iplugins tests/perf/hip_attend/attend_bench.cu -o attend_bench
//     -L. -lattend_reference -Xlinker -rpath -Xlinker '$ORIGIN'
//   ./attend_bench
#include "attend_step.hpp"

#include "attend_bench_kernels.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

using namespace attend_bench;

#define CHECK(call)                                                                                   \
  do {                                                                                                \
    if (const cudaError_t e = (call); e != cudaSuccess) {                                             \
      std::printf("%s: %s\n", #call, cudaGetErrorString(e));                                          \
      std::exit(1);                                                                                   \
    }                                                                                                 \
  } while (0)

#ifdef ATTEND_BENCH_THREADS
constexpr uint32_t kThreads = ATTEND_BENCH_THREADS;
#else
constexpr uint32_t kThreads = turbo::gpu::kAttendThreads;
#endif
using Kernel = void (*)(const AttendArgs);

static Kernel kernel_of(const Step& s) {
  if (s.codec == "f16") return s.queries == 1 ? attend_f16_16_1 : s.queries == 2 ? attend_f16_16_2 : s.queries == 4 ? attend_f16_16_4 : attend_f16_16_8;
  if (s.codec == "q4") return s.queries == 1 ? attend_q4_16_1 : s.queries == 2 ? attend_q4_16_2 : s.queries == 4 ? attend_q4_16_4 : attend_q4_16_8;
  return s.queries == 1 ? attend_rotated4_16_1 : s.queries == 2 ? attend_rotated4_16_2 : s.queries == 4 ? attend_rotated4_16_4 : attend_rotated4_16_8;
}

struct OnDevice {
  std::vector<void*> owned;
  ~OnDevice() {
    for (void* p : owned) cudaFree(p);
  }
  void* take(size_t bytes) {
    void* p = nullptr;
    CHECK(cudaMalloc(&p, bytes ? bytes : 1));
    owned.push_back(p);
    return p;
  }
  template <class T>
  const T* operator()(const std::vector<T>& v) {
    void* p = take(v.size() * sizeof(T));
    CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<const T*>(p);
  }
};

static AttendArgs on_device(Step& s, OnDevice& d, float*& out) {
  out = static_cast<float*>(d.take(s.q.size() * 4));
  float* const partials = static_cast<float*>(d.take(s.partial_floats() * 4));
  const size_t n_counters = s.rows * s.kv_heads * 16;
  uint32_t* const counters = static_cast<uint32_t*>(d.take(n_counters * 4));
  CHECK(cudaMemset(counters, 0, n_counters * 4));
  return s.args([&](const auto& v) { return d(v); }, out, partials, counters);
}
TB_ATTEND_KERNEL(nothing, AttendArgs) { (void)args; }
static void launch(const Step& s, const AttendArgs& g, cudaStream_t stream) {
  cudaLaunchAttribute early{};  // as the runtime launches kernels that wait by themselves
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(s.kv_heads * g.head_tiles, g.loop ? 1 : s.chunk_blocks(), s.rows);
  config.blockDim = dim3(kThreads);
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, s.codec == "nothing" ? nothing : kernel_of(s), g));
}

static bool same_bits(const char* codec, uint32_t group, uint32_t depth, uint32_t rows) {
  Step s(codec, 2, group, depth, rows);
  std::vector<float> there(s.q.size()), here(s.q.size()), looped(s.q.size());
  {
    OnDevice d;
    float* out;
    AttendArgs g = on_device(s, d, out);
    for (int round = 0; round < 2; ++round) launch(s, g, nullptr);  // the counters come back
    CHECK(cudaMemcpy(there.data(), out, there.size() * 4, cudaMemcpyDeviceToHost));
    g.loop = 1;
    g.a.k_rows = nullptr;
    launch(s, g, nullptr);
    CHECK(cudaMemcpy(looped.data(), out, looped.size() * 4, cudaMemcpyDeviceToHost));
  }
  std::vector<float> partials(s.partial_floats());
  std::vector<uint32_t> counters(s.rows * s.kv_heads * 16);
  std::vector<std::unique_ptr<uint8_t[]>> aligned;
  const auto place = [&](const auto& v) {
    const size_t bytes = v.size() * sizeof v[0];
    aligned.push_back(std::make_unique<uint8_t[]>(bytes + 256));
    uint8_t* const p = aligned.back().get() + (256 - reinterpret_cast<uintptr_t>(aligned.back().get()) % 256);
    std::memcpy(p, v.data(), bytes);
    return reinterpret_cast<decltype(v.data())>(p);
  };
  const AttendArgs g = s.args(place, here.data(), partials.data(), counters.data());
  attend_reference(codec, s.queries, &g);
  const bool same = std::memcmp(there.data(), here.data(), here.size() * 4) == 0, loop = std::memcmp(there.data(), looped.data(), here.size() * 4) == 0;
  double worst = 0;
  for (size_t i = 0; i < here.size(); ++i) worst = std::max(worst, std::fabs(double(here[i]) - double(there[i])));
  std::printf("%-9s group %u depth %5u rows %u: %s, all chunks a block %s (largest difference %.3g)\n", codec, group, depth, rows,
              same ? "equal bits" : "BITS DIFFER", loop ? "equal" : "DIFFERS", worst);
  return same && loop;
}

static void measure(const char* codec, const char* model, uint32_t group, uint32_t depth, uint32_t rows) {
  Step s(codec, 8, group, depth, rows);
  OnDevice d;
  // As many copies of the cache as keep the far cache cold.
  const size_t copies = std::clamp<size_t>(400000000 / std::max<size_t>(1, s.bytes_read()), 1, 16);
  std::vector<AttendArgs> layers;
  float* out;
  layers.push_back(on_device(s, d, out));
  for (size_t i = 1; i < copies; ++i) {
    AttendArgs g = layers[0];
    g.a.k.base = const_cast<uint8_t*>(d(s.k));
    g.a.v.base = const_cast<uint8_t*>(d(s.v));
    layers.push_back(g);
  }
  constexpr int kLayers = 32, kReplays = 9;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t begin, end;
  CHECK(cudaStreamCreate(&stream));
  CHECK(cudaEventCreate(&begin));
  CHECK(cudaEventCreate(&end));
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  for (int i = 0; i < kLayers; ++i) launch(s, layers[i % copies], stream);
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<float> ms(kReplays);
  for (int i = -2; i < kReplays; ++i) {
    CHECK(cudaEventRecord(begin, stream));
    CHECK(cudaGraphLaunch(exec, stream));
    CHECK(cudaEventRecord(end, stream));
    CHECK(cudaEventSynchronize(end));
    if (i >= 0) CHECK(cudaEventElapsedTime(&ms[i], begin, end));
  }
  std::sort(ms.begin(), ms.end());
  const double us = ms[kReplays / 2] * 1000 / kLayers;
  std::printf("%-9s %-6s depth %5u rows %u: %8.2f us a layer (best %.2f) %8.1f GB/s\n", codec, model, depth, rows, us, ms[0] * 1000 / kLayers,
              double(s.bytes_read()) / us / 1000);
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaStreamDestroy(stream);
}

static bool compare() {
  bool good = true;
  for (const char* codec : {"f16", "q4", "rotated4"}) {
    for (uint32_t rows : {1u, 2u, 4u, 8u}) good &= same_bits(codec, 2, 0, rows);
    for (uint32_t rows : {1u, 3u}) good &= same_bits(codec, 4, 1000, rows);
    for (uint32_t depth : {63u, 191u, 255u, 4096u}) good &= same_bits(codec, 2, depth, 2);
  }
  std::printf(good ? "all bits equal\n" : "BITS DIFFER\n");
  return good;
}
/// ATTEND_QUERIES=n in the environment: tiles of at least n queries, not the narrowest that the rule allows.
/// Without arguments: compare, then measure everything. Else for each: "bits" compares, codec:group:depth:rows is measured.
/// The codec "nothing" is a kernel that does nothing: what a launch alone costs.
int main(int argc, char** argv) {
  bool good = true;
  for (int i = 1; i < argc; ++i) {
    char codec[16];
    uint32_t group, depth, rows;
    if (std::strcmp(argv[i], "bits") == 0) good &= compare();
    else if (std::sscanf(argv[i], "%15[^:]:%u:%u:%u", codec, &group, &depth, &rows) == 4) measure(codec, group == 2 ? "1.7B" : "4B/8B", group, depth, rows);
  }
  if (argc > 1) return good ? 0 : 1;
  good = compare();
  for (const char* codec : {"f16", "q4", "rotated4"})
    for (const auto& [model, group] : {std::pair{"1.7B", 2u}, std::pair{"4B/8B", 4u}})
      for (uint32_t depth : {0u, 250u, 4096u, 32768u})
        for (uint32_t rows : {1u, 2u, 4u, 8u}) measure(codec, model, group, depth, rows);
  return good ? 0 : 1;
}
