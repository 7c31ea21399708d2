// Q1_0 kernels on an NVIDIA device: bit checks against the formula, then times of every matrix of three models with cold
// weights in captured graphs, and the matrix product beside the measured peak of the integer dot.
// Build: nvcc -O3 -std=c++20 -arch=sm_90 -fmad=false -Isdk/include -Iplugins/quant_q1g128/hip tests/gpu/bench_q1.cu -o bench_q1
// Run:   ./bench_q1            about 30 s; "check" as argument: the bit checks alone; "tune": every choice, not the default one;
//       "prompt": fewer checks, then the matrix products of 128, 256 and 512 rows by every number of rows a lane, 20 s;
//       "profile": each product once, for ncu
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "../../plugins/quant_q1g128/hip/choice.h"
#include "../../plugins/quant_q1g128/hip/product.hip"

#define CHECK(call)                                                                          \
  do {                                                                                       \
    const cudaError_t status_ = (call);                                                      \
    if (status_ != cudaSuccess) {                                                            \
      std::printf("FAILED %s line %d: %s\n", #call, __LINE__, cudaGetErrorString(status_));  \
      std::exit(1);                                                                          \
    }                                                                                        \
  } while (0)

namespace {

using namespace turbo::gpu;
using turbo::q1::Choice;

__host__ __device__ uint32_t hash(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}
__global__ void fill_halves(uint16_t* p, size_t n, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n; i += size_t{gridDim.x} * blockDim.x)
    p[i] = float_to_half(0.01f + static_cast<float>(hash(static_cast<uint32_t>(i) + seed) & 1023) / 40000.f);
}
__global__ void read_all(uint32_t* out, const Words4* p, size_t n) {
  uint32_t x = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i + 3 * step < n; i += 4 * step) {
    Words4 v[4];
    for (int j = 0; j < 4; ++j) v[j] = load_stream(p + i + j * step);
    for (int j = 0; j < 4; ++j) x ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  if (x == 0x12345678u) *out = x;
}
__global__ void dot_peak(int* out, int loops, int seed) {
  int acc[8], w[8], a = seed * 7 + threadIdx.x;
  for (int j = 0; j < 8; ++j) acc[j] = j, w[j] = seed * (j + 3) + threadIdx.x;
  for (int l = 0; l < loops; ++l)
#pragma unroll
    for (int i = 0; i < 8; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) acc[j] = __dp4a(w[j], a, acc[j]);
  int s = 0;
  for (int j = 0; j < 8; ++j) s += acc[j];
  if (s == 42) *out = s;
}

struct Nothing {
  uint32_t* out;
};
TB_KERNEL(do_nothing, Nothing, 256) {
  if (args.out && thread() == 0) args.out[block_x()] = 1;
}

cudaStream_t stream;
uint32_t units = 0, shared_limit = 0;
int failures = 0;

template <typename T>
T* device(size_t n) {
  T* p = nullptr;
  CHECK(cudaMalloc(&p, std::max<size_t>(n, 1) * sizeof(T)));
  CHECK(cudaMemset(p, 0xff, n * sizeof(T)));
  return p;
}
template <typename T>
T* device(const std::vector<T>& v) {
  T* p = device<T>(v.size());
  CHECK(cudaMemcpy(p, v.data(), v.size() * sizeof(T), cudaMemcpyHostToDevice));
  return p;
}

double median_us(int n, const std::function<void()>& work) {
  cudaEvent_t a, b;
  CHECK(cudaEventCreate(&a));
  CHECK(cudaEventCreate(&b));
  std::vector<float> times;
  for (int i = -2; i < n; ++i) {
    CHECK(cudaEventRecord(a, stream));
    work();
    CHECK(cudaEventRecord(b, stream));
    CHECK(cudaEventSynchronize(b));
    float ms = 0;
    CHECK(cudaEventElapsedTime(&ms, a, b));
    if (i >= 0) times.push_back(ms * 1000);
  }
  std::sort(times.begin(), times.end());
  CHECK(cudaEventDestroy(a));
  CHECK(cudaEventDestroy(b));
  return times[times.size() / 2];
}

struct Shape {
  const char* name;
  std::vector<uint32_t> rows;  // of each matrix
  uint32_t cols;
  bool norm;
  uint32_t fuse;
  bool makes_bytes;  // as in a layer
};

struct Buffers {
  float *x, *norm, *out, *residual;
  turbo_device_q8 in, made;  // bytes of x, and of outcomes
  uint32_t* n_rows;
};

q1::Product product(const Shape& s, const Buffers& b, uint32_t rows, const uint8_t* packed) {
  q1::Product p{};
  p.n_groups = s.cols / 128;
  for (auto& m : p.matrix) m.first_unit = q1::kNoUnit;
  float* out = b.out;
  for (size_t i = 0; i < s.rows.size(); ++i) {
    p.matrix[i] = {packed, packed + q1::sign_bytes(s.rows[i], p.n_groups), nullptr, out, s.rows[i], s.rows[i], p.n_units};
    p.n_units += static_cast<uint32_t>(q1::units_of(s.rows[i]));
    packed += (q1::packed_bytes(s.rows[i], p.n_groups) + 255) / 256 * 256;
    out += size_t{rows} * s.rows[i];
  }
  if (s.fuse >= q1::fuse_silu) p.n_units /= 2;
  p.n_rows = b.n_rows;
  const Q8Rows in = q8_rows(b.in, s.cols);
  p.codes = in.codes;
  p.scales = in.scales;
  p.squares = s.norm ? in.squares : nullptr;
  p.residual = b.residual;
  p.residual_stride = s.rows[0];
  if (s.makes_bytes) {
    p.out_q8 = q8_rows(b.made, s.rows[0]);
    p.out_norm = s.fuse == q1::fuse_add ? b.norm : nullptr;
  }
  p.eps = 1e-6f;
  p.n_matrices = static_cast<uint32_t>(s.rows.size());
  p.max_rows = rows;
  p.fuse = s.fuse;
  return p;
}

using KernelFunction = void (*)(const q1::Product);
KernelFunction function_of(uint32_t kernel) {
  constexpr KernelFunction functions[] = {q1_matvec_1, q1_matvec_2, q1_matvec_4, q1_gemm_2, q1_gemm_4};
  return functions[kernel];
}

// As the pack launches: the next may begin early.
template <class Args>
void start(void (*kernel)(const Args), dim3 grid, uint32_t threads, uint32_t shared_bytes, const Args& args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  CHECK(cudaLaunchKernelEx(&config, kernel, args));
}

void prepare_rows(const Shape& s, const Buffers& b, uint32_t rows) {
  start(q1_prepare, dim3(rows), q1::kPrepareThreads, 0, q1::Prepare{b.x, s.cols, s.norm ? b.norm : nullptr, b.n_rows, nullptr, q8_rows(b.in, s.cols)});
}
void launch(const Choice& choice, const q1::Product& p) {
  start(function_of(choice.kernel), dim3(choice.grid_x, choice.grid_y), choice.threads, choice.shared_bytes, p);
}

Choice default_choice(const q1::Product& p) {
  return turbo::q1::choose(p.max_rows, p.n_groups, p.n_units, p.fuse >= q1::fuse_silu, p.squares, units, shared_limit);
}
constexpr uint32_t kLaneRows[] = {2, 4};
Choice gemm_choice(const q1::Product& p, uint32_t lane_rows) { return turbo::q1::gemm_choice(lane_rows, p.max_rows, p.n_units, p.fuse >= q1::fuse_silu); }
Choice matvec_choice(const q1::Product& p, uint32_t width, uint32_t per_unit, uint32_t teams) {
  const uint32_t most = units * per_unit, rounds = (p.n_units + most - 1) / most, passes = (p.max_rows + width - 1) / width;
  const uint32_t kernel = width == 1 ? 0 : width == 2 ? 1 : 2;
  return {static_cast<turbo::q1::Kernel>(kernel), (p.n_units + rounds - 1) / rounds, passes, teams * q1::team_waves(p.n_groups) * 32,
          q1::matvec_shared_bytes(width, p.n_groups, teams)};
}

// ---- checks ----
float tree(const float* given) {
  float lanes[32], next[32];
  std::copy(given, given + 32, lanes);
  for (uint32_t m = 16; m; m >>= 1) {
    for (uint32_t i = 0; i < 32; ++i) next[i] = lanes[i] + lanes[i ^ m];
    std::copy(next, next + 32, lanes);
  }
  return lanes[0];
}

std::vector<float> formula(const std::vector<uint8_t>& packed, uint32_t rows, uint32_t cols, const float* x, const float* norm, float eps) {
  const uint32_t groups = cols / 128, length = q1::segment_groups(groups);
  std::vector<float> out(rows), scale(cols / 32);
  std::vector<int> q(cols, 0);
  float lanes[32] = {};
  for (uint32_t t = 0; t < cols / 32; ++t) {
    float y[32], squares[32], largest = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      y[i] = x[t * 32 + i] * (norm ? norm[t * 32 + i] : 1.f);
      squares[i] = x[t * 32 + i] * x[t * 32 + i];
      largest = std::max(largest, std::fabs(y[i]));
    }
    lanes[t % 32] += tree(squares);
    scale[t] = largest * (1 / 127.f);
    for (uint32_t i = 0; i < 32 && largest > 0; ++i) q[t * 32 + i] = static_cast<int>(std::nearbyint(std::min(127.f, std::max(-127.f, y[i] * (127.f / largest)))));
  }
  const float factor = 1.f / std::sqrt(tree(lanes) / static_cast<float>(cols) + eps);
  for (uint32_t o = 0; o < rows; ++o) {
    for (uint32_t s = 0; s * length < groups; ++s) {
      float acc = 0;
      for (uint32_t g = s * length; g < std::min(groups, (s + 1) * length); ++g) {
        const uint64_t word = q1::word_of(o, g, groups);
        float base = 0;
        for (uint32_t t = 0; t < 4; ++t) {
          int sum = 0;
          for (uint32_t i = 32 * t; i < 32 * t + 32; ++i) sum += q[g * 128 + i];
          base = std::fmaf(scale[g * 4 + t], static_cast<float>(sum), base);
        }
        float inner = -base;
        for (uint32_t t = 0; t < 4; ++t) {
          int sum = 0;  // under set bits
          for (uint32_t i = 32 * t; i < 32 * t + 32; ++i) {
            const q1::SignPlace at = q1::sign_place(i);
            if (packed[word * 16 + at.byte] >> at.bit & 1) sum += q[g * 128 + i];
          }
          inner = std::fmaf(2 * scale[g * 4 + t], static_cast<float>(sum), inner);
        }
        uint16_t half;
        std::memcpy(&half, &packed[q1::sign_bytes(rows, groups) + word * 2], 2);
        acc = std::fmaf(__half2float(__ushort_as_half(half)), inner, acc);
      }
      out[o] += acc;
    }
    if (norm) out[o] *= factor;
  }
  return out;
}

void check(uint32_t rows, uint32_t cols, uint32_t n, bool normed) {
  const uint32_t groups = cols / 128;
  std::vector<uint8_t> packed(q1::packed_bytes(rows, groups));
  for (size_t i = 0; i < q1::sign_bytes(rows, groups); ++i) packed[i] = static_cast<uint8_t>(hash(static_cast<uint32_t>(i) + rows));
  for (size_t i = q1::sign_bytes(rows, groups); i < packed.size(); i += 2) {
    const uint16_t half = static_cast<uint16_t>(0x2400 + (hash(static_cast<uint32_t>(i)) & 0x8fff) % 0x0c00);
    std::memcpy(&packed[i], &half, 2);
  }
  std::vector<float> x(size_t{n} * cols), norm(cols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(hash(static_cast<uint32_t>(i) + 77) % 4001) - 2000) / 613.f;
  for (size_t i = 0; i < norm.size(); ++i) norm[i] = 0.5f + static_cast<float>(hash(static_cast<uint32_t>(i) + 5) % 1000) / 1000.f;
  Buffers b{device(x), device(norm), device<float>(size_t{n} * rows), nullptr, {device<uint8_t>(TURBO_DEVICE_Q8_BYTES(n, cols)), n}, {}, device(std::vector<uint32_t>{n})};
  const Shape shape{"check", {rows}, cols, normed, q1::fuse_none, false};
  uint8_t* const on_device = device(packed);
  const q1::Product p = product(shape, b, n, on_device);
  std::vector<float> want;
  for (uint32_t r = 0; r < n; ++r) {
    const auto row = formula(packed, rows, cols, &x[size_t{r} * cols], normed ? norm.data() : nullptr, p.eps);
    want.insert(want.end(), row.begin(), row.end());
  }
  std::vector<std::pair<std::string, Choice>> choices = {{"default", default_choice(p)}};
  for (const uint32_t lane_rows : kLaneRows) choices.push_back({"gemm", gemm_choice(p, lane_rows)});
  for (const uint32_t width : {1u, 2u, 4u})
    for (const uint32_t teams : {1u, 2u})
      if (teams <= q1::most_teams(groups) && q1::matvec_shared_bytes(width, groups, teams) <= shared_limit) choices.push_back({"matvec", matvec_choice(p, width, 2, teams)});
  for (const auto& [name, choice] : choices) {
    CHECK(cudaMemset(b.out, 0xff, want.size() * 4));
    prepare_rows(shape, b, n);
    launch(choice, p);
    CHECK(cudaStreamSynchronize(stream));
    std::vector<float> got(want.size());
    CHECK(cudaMemcpy(got.data(), b.out, got.size() * 4, cudaMemcpyDeviceToHost));
    size_t bad = 0;
    for (size_t i = 0; i < got.size(); ++i) bad += std::memcmp(&got[i], &want[i], 4) != 0;
    if (bad) {
      ++failures;
      std::printf("WRONG %u x %u, %u rows%s, %s, kernel %d: %zu of %zu differ\n", rows, cols, n, normed ? ", norm" : "", name.c_str(), static_cast<int>(choice.kernel), bad, got.size());
    }
  }
  for (void* q : {static_cast<void*>(b.x), static_cast<void*>(b.norm), static_cast<void*>(b.out), static_cast<void*>(b.in.base), static_cast<void*>(b.n_rows), static_cast<void*>(on_device)})
    CHECK(cudaFree(q));
}

// ---- times ----
uint64_t bytes_of(const Shape& s) {
  uint64_t bytes = 0;
  for (const uint32_t r : s.rows) bytes += (q1::packed_bytes(r, s.cols / 128) + 255) / 256 * 256;
  return bytes;
}

double time_of(const Shape& s, const Buffers& b, uint32_t rows, const Choice& choice, const uint8_t* pool, uint64_t pool_bytes) {
  const uint64_t bytes = bytes_of(s);
  const int copies = static_cast<int>(std::min<uint64_t>(48, std::max<uint64_t>(1, pool_bytes / bytes)));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int c = 0; c < copies; ++c) launch(choice, product(s, b, rows, pool + c * bytes));
  CHECK(cudaStreamEndCapture(stream, &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  const double us = median_us(9, [&] { CHECK(cudaGraphLaunch(exec, stream)); }) / copies;
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  return us;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  CHECK(cudaStreamCreate(&stream));
  units = static_cast<uint32_t>(properties.multiProcessorCount);
  shared_limit = turbo::q1::kMostSharedBytes;
  for (uint32_t k = 0; k < 3; ++k) CHECK(cudaFuncSetAttribute(function_of(k), cudaFuncAttributeMaxDynamicSharedMemorySize, shared_limit));
  std::printf("%s, %u SMs\n", properties.name, units);
  for (uint32_t k = 0; k < turbo::q1::prepare; ++k) {
    cudaFuncAttributes a;
    CHECK(cudaFuncGetAttributes(&a, function_of(k)));
    std::printf("kernel %u: %d registers, %zu local bytes, %zu shared bytes\n", k, a.numRegs, a.localSizeBytes, a.sharedSizeBytes);
  }
  for (const uint32_t cols : {128u, 640u, 2048u, 2560u, 4096u, 6144u, 9728u, 12288u})
    if (mode != "profile")
    for (const uint32_t n : {1u, 2u, 3u, 4u, 8u, 9u, 70u}) {
      if (n > 9 && cols > 4096) continue;
      if (mode == "prompt" && (n < 9 || cols == 640 || cols == 2560 || cols == 9728)) continue;
      check(cols > 4096 ? 37 : 150, cols, n, n % 2 == 1);
    }
  std::printf("bit checks: %s\n", failures ? "WRONG" : "all equal to the formula");
  if (mode == "check" || failures) return failures != 0;

  const uint64_t pool_bytes = uint64_t{1536} << 20;
  uint8_t* const pool = device<uint8_t>(pool_bytes);
  // Any 16 bits are signs; as scales they would be NaN here and there, which costs nothing but is no fair picture.
  fill_halves<<<2048, 256, 0, stream>>>(reinterpret_cast<uint16_t*>(pool), pool_bytes / 2, 9);
  constexpr uint32_t kMostRows = 512, kMostCols = 12288, kMostOut = 151936;
  Buffers b{device<float>(size_t{kMostRows} * kMostCols), device<float>(kMostCols), device<float>(size_t{kMostRows} * 24576 + size_t{8} * kMostOut),
            device<float>(size_t{kMostRows} * 12288), {device<uint8_t>(TURBO_DEVICE_Q8_BYTES(kMostRows, kMostCols)), kMostRows}, {device<uint8_t>(TURBO_DEVICE_Q8_BYTES(kMostRows, kMostCols)), kMostRows},
            device(std::vector<uint32_t>(1024, kMostRows))};
  std::vector<float> x(size_t{kMostRows} * kMostCols);
  for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(hash(static_cast<uint32_t>(i)) % 4001) / 2000.f - 1.f;
  CHECK(cudaMemcpy(b.x, x.data(), x.size() * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b.norm, x.data(), kMostCols * 4, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(b.residual, x.data(), size_t{kMostRows} * 12288 * 4, cudaMemcpyHostToDevice));
  const double read_us = median_us(9, [&] { read_all<<<units * 8, 512, 0, stream>>>(reinterpret_cast<uint32_t*>(b.out), reinterpret_cast<const Words4*>(pool), pool_bytes / 16); });
  const double peak_us = median_us(5, [&] { dot_peak<<<units * 8, 256, 0, stream>>>(reinterpret_cast<int*>(b.out), 2000, 3); });
  const double read_rate = static_cast<double>(pool_bytes) / read_us * 1e-3, peak = static_cast<double>(units) * 8 * 256 * 64 * 2000 / peak_us * 1e-6;
  std::printf("read %.0f GB/s, dot4 peak %.2f T/s\n", read_rate, peak);
  {
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 100; ++i) start(do_nothing, dim3(units), 256, 0, Nothing{b.n_rows + 1});
    CHECK(cudaStreamEndCapture(stream, &graph));
    CHECK(cudaGraphInstantiate(&exec, graph, 0));
    std::printf("a launch that does nothing: %.2f us\n", median_us(9, [&] { CHECK(cudaGraphLaunch(exec, stream)); }) / 100);
  }

  struct Model { const char* name; uint32_t h, ff, kv; uint32_t q; };
  for (const Model& m : {Model{"1.7B", 2048, 6144, 1024, 2048}, Model{"4B", 2560, 9728, 1024, 4096}, Model{"8B", 4096, 12288, 1024, 4096}}) {
    const Shape shapes[] = {{"qkv", {m.q, m.kv, m.kv}, m.h, true, q1::fuse_none, false},
                            {"o", {m.h}, m.q, false, q1::fuse_add, true},
                            {"gate|up", {m.ff, m.ff}, m.h, true, q1::fuse_silu, true},
                            {"down", {m.h}, m.ff, false, q1::fuse_add, true},
                            {"head", {kMostOut}, m.h, true, q1::fuse_none, false}};
    double step[4] = {0, 0, 0, 0};
    for (const Shape& s : shapes) {
      prepare_rows(s, b, kMostRows);
      const bool head = s.rows[0] == kMostOut;
      if (mode == "profile") {  // one of each, for ncu
        for (const uint32_t rows : {1u, 2u, 8u, 512u}) {
          const q1::Product p = product(s, b, head ? std::min(rows, 8u) : rows, pool);
          launch(default_choice(p), p);
        }
        CHECK(cudaStreamSynchronize(stream));
        continue;
      }
      const auto dots_of = [&](uint32_t rows) {
        double dots = 0;
        for (const uint32_t r : s.rows) dots += static_cast<double>(r) * s.cols / 4 * rows;
        return dots;
      };
      if (mode == "prompt") {
        for (const uint32_t rows : {128u, 256u, 512u}) {
          if (head) break;
          const q1::Product p = product(s, b, rows, pool);
          std::printf("%-5s %-8s %3u rows:", m.name, s.name, rows);
          for (const uint32_t lane_rows : kLaneRows) {
            const double us = time_of(s, b, rows, gemm_choice(p, lane_rows), pool, pool_bytes);
            std::printf(" by %u %7.1f us %4.1f %%%s |", lane_rows, us, 100 * dots_of(rows) / us * 1e-6 / peak,
                        default_choice(p).kernel == gemm_choice(p, lane_rows).kernel ? " chosen" : "");
          }
          std::printf("\n");
        }
        continue;
      }
      std::printf("%-5s %-8s %7.2f MB, floor %6.2f us |", m.name, s.name, static_cast<double>(bytes_of(s)) * 1e-6, static_cast<double>(bytes_of(s)) / read_rate * 1e-3);
      for (uint32_t i = 0; i < 4; ++i) {
        const uint32_t rows = 1u << i;
        const q1::Product p = product(s, b, rows, pool);
        const Choice c = default_choice(p);
        const double us = time_of(s, b, rows, c, pool, pool_bytes);
        if (!head) step[i] += us;
        std::printf(" R%u %7.2f us %5.0f GB/s", rows, us, static_cast<double>(bytes_of(s)) / us * 1e-3);
        if (mode == "tune") {
          std::printf(" [");
          for (const uint32_t width : {1u, 2u, 4u})
            for (const uint32_t per_unit : {1u, 2u})
              for (const uint32_t teams : {1u, 2u}) {
                if (width > rows || width * 2 < rows || teams > q1::most_teams(p.n_groups) || q1::matvec_shared_bytes(width, p.n_groups, teams) > shared_limit) continue;
                std::printf(" w%u x%u t%u %.2f", width, per_unit, teams, time_of(s, b, rows, matvec_choice(p, width, per_unit, teams), pool, pool_bytes));
              }
          std::printf(" ]");
        }
      }
      std::printf("\n");
      if (head) continue;
      for (const uint32_t rows : {16u, 32u, 64u, 128u, 256u, 512u}) {
        const q1::Product p = product(s, b, rows, pool);
        const double dots = dots_of(rows);
        std::printf("      %s %3u rows:", s.name, rows);
        for (const uint32_t lane_rows : kLaneRows) {
          const double us = time_of(s, b, rows, gemm_choice(p, lane_rows), pool, pool_bytes);
          std::printf(" gemm by %u %8.1f us, %5.2f T dot4/s, %4.1f %% of peak;", lane_rows, us, dots / us * 1e-6, 100 * dots / us * 1e-6 / peak);
        }
        for (const uint32_t width : {2u, 4u})
          if (rows <= 128 && q1::matvec_shared_bytes(width, p.n_groups, 1) <= shared_limit) {
            const double passes_us = time_of(s, b, rows, matvec_choice(p, width, 1, 1), pool, pool_bytes);
            std::printf(" matvec by %u %8.1f us, %4.1f %%;", width, passes_us, 100 * dots / passes_us * 1e-6 / peak);
          }
        std::printf(" chosen %u\n", default_choice(p).kernel);
      }
    }
    if (mode != "prompt") std::printf("%s: products of a layer: R1 %.2f R2 %.2f R4 %.2f R8 %.2f us\n", m.name, step[0], step[1], step[2], step[3]);
    std::fflush(stdout);
  }
  CHECK(cudaDeviceSynchronize());
  return 0;
}
