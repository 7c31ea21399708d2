// What a filled cache takes of the machine's memory, attention at its end included, against the formula. Shapes of the 1.7B
// model: 28 layers, 8 KV heads of 128. 8k tokens; TURBO_KV_MEMORY_TOKENS=32768 for more (the full tier).
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include <turbo/program.hpp>

#include "unit/arch_cpu/fake_host.h"

namespace turbo::test {
namespace {

constexpr uint32_t kLayers = 28, kHeads = 16, kKvHeads = 8, kDim = 128, kBoundary = 2;

uint64_t resident_bytes() {
  std::ifstream file("/proc/self/status");
  std::string line;
  while (std::getline(file, line))
    if (line.rfind("VmRSS:", 0) == 0) return std::stoull(line.substr(6)) * 1024;
  return 0;
}

uint32_t n_tokens() {
  const char* text = std::getenv("TURBO_KV_MEMORY_TOKENS");
  return text ? static_cast<uint32_t>(std::atoi(text)) / 64 * 64 : 8192;
}

struct Taken {
  uint64_t formula = 0, resident = 0, open = 0;  // open: of the formula, blocks that are not packed
};

// A cache of n_tokens positions, every byte of it written, read once by attention in all layers.
Taken fill(const std::string& codec, const std::string& boundary_v) {
  const auto codec_of = [&](uint32_t side, uint32_t layer) -> std::string {
    const bool boundary = layer < kBoundary || layer + kBoundary >= kLayers;
    return codec == "f16" || !boundary ? codec : side == TURBO_KV_SIDE_K ? "q8" : boundary_v;
  };
  Taken taken;
  PackWorld world(2, "f16", "", codec_of);
  EXPECT_TRUE(world.pack.ok()) << world.pack.message();
  const uint32_t blocks = n_tokens() / 64, n_open = codec == "f16" ? 0 : 2;
  const turbo_kv_pool_desc desc{sizeof desc, kLayers, kKvHeads, kDim, kDim, blocks, n_open};
  turbo_kv_bytes bytes{sizeof(turbo_kv_bytes)};
  EXPECT_EQ(world.pack->kv_bytes(world.pack.self(), &desc, &bytes, &world.error), TURBO_OK) << world.error.message;
  turbo_kv_pool* pool = nullptr;
  EXPECT_EQ(world.pack->kv_create(world.pack.self(), &desc, &pool, &world.error), TURBO_OK) << world.error.message;
  std::vector<uint8_t> block(bytes.block_bytes, 0x11), open(bytes.open_block_bytes, 0x11);  // small numbers in every form
  const uint64_t before = resident_bytes();
  for (uint32_t b = 0; b < blocks; ++b)
    EXPECT_EQ(world.pack->kv_write(world.pack.self(), pool, static_cast<int32_t>(b), TURBO_KV_FORM_PACKED, block.data(), block.size(), &world.error), TURBO_OK);
  for (uint32_t b = 0; b < n_open; ++b)
    EXPECT_EQ(world.pack->kv_write(world.pack.self(), pool, static_cast<int32_t>(b), TURBO_KV_FORM_OPEN, open.data(), open.size(), &world.error), TURBO_OK);
  ProgramBuilder builder("attention", 1, 0, pool);
  const uint32_t q = builder.input("q", kHeads * kDim), out = builder.buffer("out", kHeads * kDim, TURBO_ROWS_STEP, true);
  for (uint32_t l = 0; l < kLayers; ++l) builder.attend({l, q, out, kHeads, 0.088f});
  turbo_plan* plan = world.compile(builder.program());
  turbo_step_table* t = world.table(1, 1, blocks);
  t->n_rows = t->n_seqs = 1;
  t->position[0] = t->slot[0] = static_cast<int32_t>(n_tokens() - 1);
  t->committed[0] = t->position[0];
  for (uint32_t b = 0; b < blocks; ++b) {
    t->block_table[b] = static_cast<int32_t>(b);
    t->open_table[b] = n_open && (b == 0 || b + 1 == blocks) ? static_cast<int32_t>(b != 0) : -1;  // sinks and its own block
  }
  EXPECT_EQ(world.run(plan, t), TURBO_OK) << world.error.message;
  taken.resident = resident_bytes() - before;
  taken.open = bytes.open_block_bytes * n_open;
  taken.formula = bytes.block_bytes * blocks + bytes.open_block_bytes * n_open;
  world.pack->plan_free(world.pack.self(), plan);
  world.pack->table_free(world.pack.self(), t);
  world.pack->kv_free(world.pack.self(), pool);
  return taken;
}

TEST(KvMemory, AFilledCacheTakesWhatTheFormulaSays) {
  struct Mode { const char *codec, *boundary_v; double share; };
  const Taken f16 = fill("f16", "");
  ASSERT_EQ(f16.formula, uint64_t{kLayers} * kKvHeads * kDim * 2 * 2 * n_tokens());
  for (const Mode& mode : {Mode{"tq4", "tq4", 0.30}, {"rq4_planar", "rq4_planar", 0.30}, {"rq4_iso", "rq4_iso", 0.30}, {"tq3", "tq4", 0.24},
                           {"rq3_planar", "rq4_planar", 0.24}, {"rq3_iso", "rq4_iso", 0.24}, {"tq2", "tq4", 0.18}}) {
    const Taken packed = fill(mode.codec, mode.boundary_v);
    // Scratch of attention and the allocator's pages: a few MiB whatever the length.
    EXPECT_NEAR(static_cast<double>(packed.resident), static_cast<double>(packed.formula), 0.02 * static_cast<double>(packed.formula) + (8 << 20)) << mode.codec;
    // Two blocks of a sequence stay as they are written; the promised shares are those of 32k tokens.
    const uint64_t counted = packed.resident - (n_tokens() < 32768 ? packed.open : 0);
    EXPECT_LE(static_cast<double>(counted), mode.share * static_cast<double>(f16.resident)) << mode.codec;
    std::printf("%s: %.1f MiB of %.1f, %.3f of f16\n", mode.codec, static_cast<double>(packed.resident) / 1048576, static_cast<double>(packed.formula) / 1048576,
                static_cast<double>(packed.resident) / static_cast<double>(f16.resident));
  }
}

}  // namespace
}  // namespace turbo::test
