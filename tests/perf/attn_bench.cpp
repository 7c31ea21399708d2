// Costs of the CPU pack that do not depend on a weight format: a barrier of the thread team, attention over the cache
// in bytes per second, and the phases of a decode step. Prints a line each, or JSON with --json.
// Several codecs are measured in turn.
//   attn_bench [--json] [--threads n] [--context n] [--codec f16,tq4,rq3_iso,..] [--rows n] [--heads n] [--rounds n]
#include "unit/arch_cpu/fake_host.h"

#include "team.h"

#include <turbo/program.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <sstream>

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

/// `kLayers` attention ops on one query row (or a chain of rows) over a full context, heads of 128 on 8 KV heads.
class Attention {
 public:
  Attention(uint32_t threads, uint32_t context, const std::string& codec, uint32_t rows, uint32_t heads) : codec(codec), world_(threads, codec) {
    const uint32_t blocks = (context + 63) / 64;
    // Codecs of two forms: the blocks of the sinks and of the query rows are open too.
    const uint32_t first_own = (context - rows) / 64, n_open = 1 + blocks - first_own;
    const turbo_kv_pool_desc desc{sizeof desc, kLayers, kKvHeads, kDim, kDim, blocks, n_open};
    turbo_kv_pool* pool = nullptr;
    turbo_kv_bytes bytes{sizeof(turbo_kv_bytes)};
    const turbo_arch_pack* pack = world_.pack.operator->();
    void* self = world_.pack.self();
    pack->kv_bytes(self, &desc, &bytes, &world_.error);
    pack->kv_create(self, &desc, &pool, &world_.error);
    const std::vector<uint8_t> fill(std::max(bytes.block_bytes, bytes.open_block_bytes), 0x11);  // any small number
    const uint32_t closed_form = bytes.open_is_packed ? TURBO_KV_FORM_OPEN : TURBO_KV_FORM_PACKED;
    for (uint32_t b = 0; b < blocks; ++b) pack->kv_write(self, pool, static_cast<int32_t>(b), closed_form, fill.data(), bytes.block_bytes, &world_.error);
    for (uint32_t b = 0; b < n_open && !bytes.open_is_packed; ++b)
      pack->kv_write(self, pool, static_cast<int32_t>(b), TURBO_KV_FORM_OPEN, fill.data(), bytes.open_block_bytes, &world_.error);
    turbo::ProgramBuilder builder("attention", rows, 0, pool);
    const uint32_t q = builder.input("q", heads * kDim), out = builder.buffer("out", heads * kDim, TURBO_ROWS_STEP, true);
    for (uint32_t l = 0; l < kLayers; ++l) builder.attend({l, q, out, heads, 0.088f});
    plan_ = world_.compile(builder.program());
    table_ = world_.table(rows, 1, blocks);
    table_->n_rows = rows;
    table_->n_seqs = 1;
    for (uint32_t b = 0; b < blocks; ++b) table_->block_table[b] = static_cast<int32_t>(b);
    if (!bytes.open_is_packed) {
      table_->open_table[0] = 0;
      for (uint32_t b = first_own; b < blocks; ++b) table_->open_table[b] = static_cast<int32_t>(1 + b - first_own);
    }
    for (uint32_t r = 0; r < rows; ++r) table_->position[r] = table_->slot[r] = static_cast<int32_t>(context - rows + r);
    cache_bytes_ = static_cast<double>(bytes.block_bytes) / kLayers / 64 * context;
  }

  void measure(int times) {
    for (int i = 0; i < times; ++i) {
      const auto start = Clock::now();
      if (world_.run(plan_, table_) != TURBO_OK) std::fprintf(stderr, "%s\n", world_.error.message);
      ms_.push_back(seconds_since(start) * 1e3 / kLayers);
    }
  }
  double best_ms() const { return *std::min_element(ms_.begin(), ms_.end()); }
  double median_ms() const {
    std::vector<double> sorted = ms_;
    std::sort(sorted.begin(), sorted.end());
    return sorted[sorted.size() / 2];
  }
  double gb_per_s() const { return cache_bytes_ / best_ms() / 1e6; }

  const std::string codec;

 private:
  static constexpr uint32_t kLayers = 16, kDim = 128;  // blocks of 4 MiB, in large pages as those of real models
  PackWorld world_;
  turbo_plan* plan_ = nullptr;
  turbo_step_table* table_ = nullptr;
  double cache_bytes_ = 0;
  std::vector<double> ms_;
};

}  // namespace

int main(int argc, char** argv) {
  uint32_t threads = turbo::arch_cpu::available_cpus(), context = 8192, rows = 1, heads = 16, rounds = 5;
  std::string codecs = "f16";
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--json") json = true;
    else if (i + 1 >= argc) return std::fprintf(stderr, "%s needs a value\n", argv[i]), 2;
    else if (name == "--threads") threads = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--context") context = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--rows") rows = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--heads") heads = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--rounds") rounds = static_cast<uint32_t>(std::atoi(argv[++i]));
    else if (name == "--codec") codecs = argv[++i];
    else return std::fprintf(stderr, "unknown option %s\n", argv[i]), 2;
  }
  if (threads == 0 || rows == 0 || context < rows || heads == 0 || heads % kKvHeads != 0 || rounds == 0) return std::fprintf(stderr, "bad values\n"), 2;
  std::vector<std::unique_ptr<Attention>> all;
  std::istringstream names(codecs);
  for (std::string codec; std::getline(names, codec, ',');) {
    if (!codec_component(codec)) return std::fprintf(stderr, "no codec %s\n", codec.c_str()), 2;
    all.push_back(std::make_unique<Attention>(threads, context, codec, rows, heads));
  }
  // In turn, so that a machine that changes its speed changes it for all of them.
  for (uint32_t round = 0; round < rounds; ++round)
    for (const auto& attention : all) attention->measure(3);
  const double barrier = barrier_us(threads);
  if (!json) std::printf("threads %u\nbarrier %.3f us\n", threads, barrier);
  for (const auto& a : all)
    if (json)
      std::printf("{\"threads\": %u, \"barrier_us\": %.3f, \"codec\": \"%s\", \"context\": %u, \"rows\": %u, \"attend_ms_best\": %.4f, "
                  "\"attend_ms_median\": %.4f, \"cache_gb_per_s\": %.2f}\n",
                  threads, barrier, a->codec.c_str(), context, rows, a->best_ms(), a->median_ms(), a->gb_per_s());
    else
      std::printf("attention %s, context %u, rows %u: best %.4f ms, median %.4f ms a layer, %.2f GB/s of cache\n", a->codec.c_str(), context, rows,
                  a->best_ms(), a->median_ms(), a->gb_per_s());
  return 0;
}
