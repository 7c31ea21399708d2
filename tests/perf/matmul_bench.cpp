// Measures weight-format matmuls with weights streamed from memory.
//
//   matmul_bench [--type q1_0|f32|f16|bf16|q8_0|q4_0] [--rows N] [--cols N] [--megabytes N] [--n 1,2,4,8,64]
//                [--threads 1,2] [--repeat N] [--activations int8|f32] [--isa scalar|avx2|avx512] [--json]
//
// Cycles through as many rows x cols matrices as fill --megabytes of packed weights (default 240), so that a cache
// holds none of them for the next pass. One pass = every matrix times n activation rows, outputs split evenly over
// the threads. Prints the median and the spread of the passes, the least CPU time of a pass's busiest thread (what is
// left to compare when others load the machine), and the time to prepare one activation row.
#include <dlfcn.h>
#include <sys/mman.h>
#include <turbo/abi/plugin.h>
#include <turbo/abi/weight_format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Settings {
  std::string type = "q1_0", activations = "int8";
  uint64_t rows = 2048, cols = 2048, megabytes = 240, repeat = 9;
  std::vector<uint32_t> n = {1, 2, 4, 8, 64}, threads = {1, 2};
  bool json = false;
};

[[noreturn]] void fail(const std::string& message) {
  std::fprintf(stderr, "matmul_bench: %s\n", message.c_str());
  std::exit(2);
}

std::vector<uint32_t> parse_list(const char* text) {
  std::vector<uint32_t> list;
  while (*text) {
    char* end;
    list.push_back(static_cast<uint32_t>(std::strtoul(text, &end, 10)));
    if (end == text || list.back() == 0) fail("expected a list like 1,2,4");
    text = *end == ',' ? end + 1 : end;
  }
  return list;
}

Settings parse(int argc, char** argv) {
  Settings s;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    if (key == "--json") {
      s.json = true;
      continue;
    }
    if (i + 1 >= argc) fail(key + ": unknown option or missing value");
    const char* value = argv[++i];
    if (key == "--type")
      s.type = value;
    else if (key == "--activations")
      s.activations = value;
    else if (key == "--rows")
      s.rows = std::strtoull(value, nullptr, 10);
    else if (key == "--cols")
      s.cols = std::strtoull(value, nullptr, 10);
    else if (key == "--megabytes")
      s.megabytes = std::strtoull(value, nullptr, 10);
    else if (key == "--repeat")
      s.repeat = std::max<uint64_t>(1, std::strtoull(value, nullptr, 10));
    else if (key == "--n")
      s.n = parse_list(value);
    else if (key == "--threads")
      s.threads = parse_list(value);
    else if (key == "--isa")
      setenv("TURBO_CPU_ISA", value, 1);
    else
      fail(key + ": unknown option");
  }
  return s;
}

// A host that offers one option, "activations".
std::string activations_option;
turbo_status get_string(void*, const char* key, const char** value) {
  if (std::strcmp(key, "activations") != 0) return TURBO_NOT_FOUND;
  *value = activations_option.c_str();
  return TURBO_OK;
}
turbo_status get_none(void*, const char*, int64_t*) { return TURBO_NOT_FOUND; }
turbo_status get_none_f64(void*, const char*, double*) { return TURBO_NOT_FOUND; }
turbo_status get_none_bool(void*, const char*, uint32_t*) { return TURBO_NOT_FOUND; }
const turbo_host_config config = {
    sizeof(turbo_host_config), 0, nullptr, get_string, get_none, get_none_f64, get_none_bool};
const void* query_service(const turbo_host*, const char* id) {
  return std::strcmp(id, TURBO_HOST_CONFIG) == 0 ? &config : nullptr;
}
const turbo_host host = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, nullptr, query_service};

struct Format {
  const turbo_weight_format* table;
  void* self;
  turbo_type_info type;
};

Format load_format(const Settings& s) {
  activations_option = s.activations;
  const std::string folder = s.type == "q1_0" ? "quant_q1g128" : "quant_basic";
  const std::string path =
      std::string(TURBO_BUILD) + "/lib/turbo/plugins/" + folder + "/libturbo_" + folder + "_cpu.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail(dlerror());
  const auto query = reinterpret_cast<turbo_plugin_query_fn>(dlsym(library, TURBO_PLUGIN_QUERY_SYMBOL));
  const turbo_component& component = query(TURBO_ABI_MAJOR, TURBO_ABI_MINOR)->components[0];
  turbo_error error{sizeof(turbo_error)};
  Format format{};
  if (component.create(&host, &format.self, &error) != TURBO_OK) fail(error.message);
  format.table = static_cast<const turbo_weight_format*>(component.query_interface(TURBO_WEIGHT_FORMAT_1));
  const turbo_type_info* types;
  uint32_t n_types;
  format.table->types(format.self, &types, &n_types);
  for (uint32_t i = 0; i < n_types; ++i)
    if (s.type == types[i].name) format.type = types[i];
  if (!format.type.block_bytes) fail("type " + s.type + " is not served");
  return format;
}

uint8_t* allocate(uint64_t bytes) {
  void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) fail("out of memory");
  madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<uint8_t*>(p);
}

// Random bytes with small positive scales where the type has an f16 scale first; plain small floats otherwise.
std::vector<uint8_t> random_source(const Settings& s, const turbo_type_info& type, std::mt19937_64& random) {
  std::vector<uint8_t> source(s.rows * s.cols / type.block_weights * type.block_bytes);
  for (uint8_t& byte : source) byte = static_cast<uint8_t>(random());
  const uint64_t high_byte = type.block_weights > 1 ? 1 : type.block_bytes - 1;
  for (uint64_t i = high_byte; i < source.size(); i += type.block_bytes) source[i] = 0x20 | (source[i] & 3);
  return source;
}

// CPU time of the calling thread: what a pass costs when others take the machine.
double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

// A team that spins between passes, as a decode loop's team does.
class Team {
 public:
  explicit Team(uint32_t n) : n_(n), busy_(n * 16) {
    for (uint32_t i = 1; i < n; ++i) threads_.emplace_back([this, i] { work(i); });
  }
  ~Team() {
    stop_ = true;
    generation_.fetch_add(1);
    for (std::thread& thread : threads_) thread.join();
  }
  template <typename Fn>
  void run(const Fn& fn) {
    call_ = [](const void* f, uint32_t i) { (*static_cast<const Fn*>(f))(i); };
    fn_ = &fn;
    pending_.store(n_ - 1);
    generation_.fetch_add(1);
    timed(0);
    for (uint32_t spins = 0; pending_.load(std::memory_order_acquire); ++spins) relax(spins);
  }

  /// Largest CPU time that a thread spent in calls since the last call of this, without its waiting.
  double take_busy() {
    double most = 0;
    for (double& busy : busy_) {
      most = std::max(most, busy);
      busy = 0;
    }
    return most;
  }

 private:
  void timed(uint32_t index) {
    const double start = cpu_seconds();
    call_(fn_, index);
    busy_[index * 16] += cpu_seconds() - start;
  }
  static void relax(uint32_t spins) {
    if (spins % 4096 == 4095) std::this_thread::yield();
    __builtin_ia32_pause();
  }
  void work(uint32_t index) {
    for (uint64_t seen = 0;;) {
      uint64_t now;
      for (uint32_t spins = 0; (now = generation_.load(std::memory_order_acquire)) == seen; ++spins) relax(spins);
      seen = now;
      if (stop_) return;
      timed(index);
      pending_.fetch_sub(1, std::memory_order_release);
    }
  }
  uint32_t n_;
  std::vector<std::thread> threads_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<uint32_t> pending_{0};
  std::atomic<bool> stop_{false};
  void (*call_)(const void*, uint32_t) = nullptr;
  const void* fn_ = nullptr;
  std::vector<double> busy_;  // one per thread, a cache line pair apart
};

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Weights {
  std::vector<turbo_matrix> matrices;
  uint32_t tile;
  uint64_t bytes;  // of one matrix
};

Weights make_weights(const Settings& s, const Format& f) {
  std::mt19937_64 random(7);
  const std::vector<uint8_t> source = random_source(s, f.type, random);
  Weights w{};
  uint64_t packed_bytes, alignment;
  turbo_error error{sizeof(turbo_error)};
  if (f.table->packed_size(f.self, f.type.type, s.rows, s.cols, &packed_bytes, &alignment, &w.tile, &error) != TURBO_OK)
    fail(error.message);
  w.bytes = packed_bytes ? packed_bytes : source.size();
  const uint64_t stride = (w.bytes + 4095) / 4096 * 4096, n = std::max<uint64_t>(1, s.megabytes * 1000000 / w.bytes);
  uint8_t* memory = allocate(stride * n);
  for (uint64_t i = 0; i < n; ++i, memory += stride) {
    if (!packed_bytes)
      std::memcpy(memory, source.data(), source.size());
    else if (f.table->repack(f.self, f.type.type, s.rows, s.cols, source.data(), source.size(), memory, 0, s.rows,
                             &error) != TURBO_OK)
      fail(error.message);
    w.matrices.push_back({sizeof(turbo_matrix), f.type.type, s.rows, s.cols, memory, packed_bytes});
  }
  return w;
}

void measure(const Settings& s, const Format& f, const Weights& w, uint32_t n_rows, uint32_t n_threads) {
  const uint64_t stride = f.table->activation_bytes(f.self, f.type.type, s.cols);
  uint8_t* activations = allocate(stride * n_rows);
  std::vector<float> x(s.cols), out(n_rows * s.rows);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  double prepare = 1e9;
  for (uint32_t r = 0; r < n_rows; ++r) {
    for (float& v : x) v = normal(random);
    f.table->prepare_row(f.self, f.type.type, x.data(), s.cols, activations + r * stride);
  }
  for (int i = 0; i < 16; ++i) {
    const double start = seconds();
    f.table->prepare_row(f.self, f.type.type, x.data(), s.cols, activations + (n_rows - 1) * stride);
    prepare = std::min(prepare, seconds() - start);
  }
  Team team(n_threads);
  std::vector<double> times;
  double cpu = 1e9;
  const uint64_t tiles = (s.rows + w.tile - 1) / w.tile;
  for (uint64_t pass = 0; pass <= s.repeat; ++pass) {
    const double start = seconds();
    for (const turbo_matrix& matrix : w.matrices)
      team.run([&](uint32_t thread) {
        const uint64_t begin = tiles * thread / n_threads * w.tile;
        const uint64_t end = std::min<uint64_t>(tiles * (thread + 1) / n_threads * w.tile, s.rows);
        if (begin >= end) return;
        const turbo_matmul call = {sizeof(turbo_matmul), n_rows, &matrix, activations, stride,
                                   out.data(),           s.rows, begin,   end};
        f.table->matmul(f.self, &call);
      });
    if (pass) times.push_back(seconds() - start);
    cpu = std::min(cpu, team.take_busy());
  }
  munmap(activations, stride * n_rows);
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  const double weights = double(s.rows) * double(s.cols) * double(w.matrices.size());
  const double gigabytes = double(w.bytes) * double(w.matrices.size()) / 1e9;
  std::printf(
      s.json
          ? "{\"type\":\"%s\",\"activations\":\"%s\",\"rows\":%llu,\"cols\":%llu,\"n\":%u,\"threads\":%u,\"ms\":%.3f,"
            "\"ms_min\":%.3f,\"ms_max\":%.3f,\"cpu_ms\":%.3f,\"ms_per_row\":%.3f,\"gigabytes_per_s\":%.2f,"
            "\"gigaweights_per_s\":%.1f,\"prepare_row_us\":%.2f}\n"
          : "%s %s %llux%llu n=%-3u threads=%u  %8.3f ms (%.3f..%.3f) cpu %.3f  %7.3f ms/row  %6.2f GB/s  %8.1f Gw/s  "
            "prepare %.2f us\n",
      s.type.c_str(), s.activations.c_str(), (unsigned long long)s.rows, (unsigned long long)s.cols, n_rows, n_threads,
      median * 1e3, times.front() * 1e3, times.back() * 1e3, cpu * 1e3, median * 1e3 / n_rows, gigabytes / median,
      weights * n_rows / median / 1e9, prepare * 1e6);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const Settings settings = parse(argc, argv);
  const Format format = load_format(settings);
  if (settings.rows == 0 || settings.cols == 0 || settings.cols % format.type.block_weights)
    fail("bad --rows or --cols");
  const Weights weights = make_weights(settings, format);
  for (uint32_t threads : settings.threads)
    for (uint32_t n : settings.n) measure(settings, format, weights, n, threads);
  return 0;
}
