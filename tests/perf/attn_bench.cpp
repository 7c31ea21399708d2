// Costs of the CPU pack that do not depend on a weight format: a barrier of the thread team, attention over the cache
// in bytes per second, and the phases of a decode step. Prints a line each, or JSON with --json.
//   attn_bench [--json] [--threads n] [--context n] [--codec f16|bf16|f32|tq4|rq3_iso|..] [--rows n] [--heads n]
#include "unit/arch_cpu/fake_host.h"

#include "team.h"

#include <turbo/program.hpp>

#include <chrono>
#include <cstdio>

namespace {

using Clock = std::chrono::steady_clock;
using namespace turbo::test;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double barrier_us(uint32_t threads) {
  turbo::arch_cpu::ThreadTeam team(threads);
  double best = 1e9;
  for (int run = 0; run < 400; ++run) {
    const auto start = Clock::now();
    team.run([](void* context, uint32_t) {
      for (int i = 0; i < 250; ++i) static_cast<turbo::arch_cpu::ThreadTeam*>(context)->barrier();
    }, &team);
    best = std::min(best, seconds_since(start) * 1e6 / 250);
  }
  return best;
}

constexpr uint32_t kKvHeads = 8;

struct Attention { double best_ms, median_ms, cache_bytes; };

// `layers` attention ops on one query row (or a chain of rows) over a full context, heads of 128 on 8 KV heads.
Attention attention(uint32_t threads, uint32_t context, const std::string& codec, uint32_t rows, uint32_t heads) {
  constexpr uint32_t kLayers = 16, kDim = 128;  // blocks of 4 MiB, in large pages as those of real models
  PackWorld world(threads, codec);
  const uint32_t blocks = (context + 63) / 64;
  // Codecs of two forms: the blocks of the sinks and of the query rows are open too.
  const uint32_t first_own = (context - rows) / 64, n_open = 1 + blocks - first_own;
  const turbo_kv_pool_desc desc{sizeof desc, kLayers, kKvHeads, kDim, kDim, blocks, n_open};
  turbo_kv_pool* pool = nullptr;
  turbo_kv_bytes bytes{sizeof(turbo_kv_bytes)};
  world.pack->kv_bytes(world.pack.self(), &desc, &bytes, &world.error);
  world.pack->kv_create(world.pack.self(), &desc, &pool, &world.error);
  const std::vector<uint8_t> fill(std::max(bytes.block_bytes, bytes.open_block_bytes), 0x11);  // any small number
  const uint32_t closed_form = bytes.open_is_packed ? TURBO_KV_FORM_OPEN : TURBO_KV_FORM_PACKED;
  for (uint32_t b = 0; b < blocks; ++b)
    world.pack->kv_write(world.pack.self(), pool, static_cast<int32_t>(b), closed_form, fill.data(), bytes.block_bytes, &world.error);
  for (uint32_t b = 0; b < n_open && !bytes.open_is_packed; ++b)
    world.pack->kv_write(world.pack.self(), pool, static_cast<int32_t>(b), TURBO_KV_FORM_OPEN, fill.data(), bytes.open_block_bytes, &world.error);
  turbo::ProgramBuilder builder("attention", rows, 0, pool);
  const uint32_t q = builder.input("q", heads * kDim), out = builder.buffer("out", heads * kDim, TURBO_ROWS_STEP, true);
  for (uint32_t l = 0; l < kLayers; ++l) builder.attend({l, q, out, heads, 0.088f});
  turbo_plan* plan = world.compile(builder.program());
  turbo_step_table* t = world.table(rows, 1, blocks);
  t->n_rows = rows;
  t->n_seqs = 1;
  for (uint32_t b = 0; b < blocks; ++b) t->block_table[b] = static_cast<int32_t>(b);
  if (!bytes.open_is_packed) {
    t->open_table[0] = 0;
    for (uint32_t b = first_own; b < blocks; ++b) t->open_table[b] = static_cast<int32_t>(1 + b - first_own);
  }
  for (uint32_t r = 0; r < rows; ++r) t->position[r] = t->slot[r] = static_cast<int32_t>(context - rows + r);
  std::vector<double> times;
  for (int i = 0; i < 15; ++i) {
    const auto start = Clock::now();
    if (world.run(plan, t) != TURBO_OK) std::fprintf(stderr, "%s\n", world.error.message);
    times.push_back(seconds_since(start) * 1e3 / kLayers);
  }
  std::sort(times.begin(), times.end());
  return {times[0], times[times.size() / 2], static_cast<double>(bytes.block_bytes) / kLayers / 64 * context};
}

}  // namespace

int main(int argc, char** argv) {
  uint32_t threads = turbo::arch_cpu::available_cpus(), context = 8192, rows = 1, heads = 16;
  std::string codec = "f16";
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") json = true;
    else if (i + 1 >= argc) return std::fprintf(stderr, "%s needs a value\n", argv[i]), 2;
    else if (name == "--threads") threads = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--context") context = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--rows") rows = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--heads") heads = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--codec") codec = argv[++i];
    else return std::fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  if (threads == 0 || rows == 0 || context < rows || heads == 0 || heads % kKvHeads != 0 || !codec_component(codec)) return std::fprintf(stderr, "bad values\n"), 2;
  const double barrier = barrier_us(threads);
  const Attention a = attention(threads, context, codec, rows, heads);
  const double rate = a.cache_bytes / a.best_ms / 1e6;
  const char* format = json ? "{\"threads\": %u, \"barrier_us\": %.3f, \"codec\": \"%s\", \"context\": %u, \"rows\": %u, \"attend_ms_best\": %.4f, "
                              "\"attend_ms_median\": %.4f, \"cache_gb_per_s\": %.2f}\n"
                            : "threads %u\nbarrier %.3f us\nattention %s, context %u, rows %u: best %.4f ms, median %.4f ms a layer, %.2f GB/s of cache\n";
  std::printf(format, threads, barrier, codec.c_str(), context, rows, a.best_ms, a.median_ms, rate);
  return 0;
}
