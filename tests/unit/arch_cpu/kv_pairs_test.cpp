// Attention of the pack with every pair of key and value codecs against plain doubles over decoded rows: each side must
// take its own codec's steps, whatever the other side's is, for any number of query heads a KV head.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include <turbo/program.hpp>

#include "unit/arch_cpu/fake_host.h"

namespace turbo::test {
namespace {

constexpr uint32_t kKvHeads = 2, kDim = 64, kWidth = kKvHeads * kDim, kBlocks = 3, kTokens = 150;
const char* const kCodecs[] = {"f32", "f16", "bf16", "fp8_e4m3", "fp8_e5m2", "q8", "q4", "tq2", "tq3", "tq4", "rq3_planar", "rq4_planar", "rq3_iso", "rq4_iso"};
constexpr uint32_t kRatios[] = {1, 2, 3, 7, 8, 16};

std::vector<float> normals(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

/// Rows of one side as a query of the last block reads them: of its own block and the sinks open, of others packed.
std::vector<float> rows_as_read(const std::string& name, uint32_t side, const std::vector<float>& rows) {
  Instance<turbo_kv_codec> codec(codec_component(name), TURBO_KV_CODEC_DRAFT, bare_host());
  const turbo_kv_shape shape{sizeof shape, side, 0, 1, kKvHeads, kDim};
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  EXPECT_EQ(codec->layout(codec.self(), &shape, &layout, nullptr), TURBO_OK);
  const bool one_form = layout.flags & TURBO_KV_OPEN_IS_PACKED;
  std::vector<float> out(rows.size());
  for (uint32_t begin = 0; begin < kTokens; begin += 64) {
    const uint32_t n = std::min(64u, kTokens - begin);
    const auto block = [](uint64_t bytes) { return std::unique_ptr<uint8_t, void (*)(void*)>(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)), &std::free); };
    const auto open = block(one_form ? layout.packed_block_bytes : layout.open_block_bytes), packed = block(layout.packed_block_bytes);
    for (uint32_t r = 0; r < n; ++r)
      EXPECT_EQ(codec->append(codec.self(), &shape, open.get(), r, &rows[(begin + r) * kWidth], 0, kKvHeads), TURBO_OK);
    const bool packs = !one_form && n == 64;
    if (packs) {
      EXPECT_EQ(codec->pack(codec.self(), &shape, open.get(), packed.get()), TURBO_OK);
    }
    for (uint32_t r = 0; r < n; ++r) {
      const bool as_packed = packs && begin + r >= layout.sinks;
      codec->decode_row(codec.self(), &shape, as_packed || one_form ? TURBO_KV_FORM_PACKED : TURBO_KV_FORM_OPEN, as_packed ? packed.get() : open.get(), r,
                        &out[(begin + r) * kWidth]);
    }
  }
  return out;
}

/// Rows of keys and values appended through the pack, 64 at a time, with attention of all of them.
class Attention {
 public:
  Attention(const std::string& k, const std::string& v, uint32_t ratio)
      : world(1, "f16", "", [k, v](uint32_t side, uint32_t) { return side == TURBO_KV_SIDE_K ? k : v; }), heads_(kKvHeads * ratio) {
    const turbo_kv_pool_desc desc{sizeof desc, 1, kKvHeads, kDim, kDim, kBlocks + 2, kBlocks + 2};
    EXPECT_EQ(world.pack->kv_bytes(world.pack.self(), &desc, &bytes, &world.error), TURBO_OK) << world.error.message;
    EXPECT_EQ(world.pack->kv_create(world.pack.self(), &desc, &pool, &world.error), TURBO_OK) << world.error.message;
    ProgramBuilder builder("attention", 64, 0, pool);
    q_ = builder.input("q", uint64_t{heads_} * kDim);
    k_ = builder.input("k", kWidth);
    v_ = builder.input("v", kWidth);
    out_ = builder.buffer("out", uint64_t{heads_} * kDim, TURBO_ROWS_STEP, true);
    builder.kv_append(0, k_, v_);
    builder.attend({0, q_, out_, heads_, 1.0f / std::sqrt(static_cast<float>(kDim))});
    plan_ = world.compile(builder.program());
    table = world.table(64, 1, kBlocks);
    table->n_seqs = 1;
    for (uint32_t b = 0; b < kBlocks; ++b) {
      table->block_table[b] = static_cast<int32_t>((b + 1) % kBlocks);  // any order
      table->open_table[b] = packs() ? static_cast<int32_t>((b + 2) % kBlocks) : -1;
    }
  }
  ~Attention() {
    world.pack->plan_free(world.pack.self(), plan_);
    world.pack->table_free(world.pack.self(), table);
    world.pack->kv_free(world.pack.self(), pool);
  }
  bool packs() const { return !bytes.open_is_packed; }

  /// Outputs of rows [begin, begin + n), which become final; a block that they close is packed.
  std::vector<float> step(uint32_t begin, uint32_t n, const float* q, const float* k, const float* v) {
    std::copy(q, q + uint64_t{n} * heads_ * kDim, world.buffer(plan_, q_));
    std::copy(k, k + uint64_t{n} * kWidth, world.buffer(plan_, k_));
    std::copy(v, v + uint64_t{n} * kWidth, world.buffer(plan_, v_));
    table->n_rows = n;
    table->committed[0] = static_cast<int32_t>(begin);
    for (uint32_t r = 0; r < n; ++r) {
      table->position[r] = table->slot[r] = static_cast<int32_t>(begin + r);
      table->row_seq[r] = table->path_length[r] = 0;
    }
    EXPECT_EQ(world.run(plan_, table), TURBO_OK) << world.error.message;
    const float* out = world.buffer(plan_, out_);
    const std::vector<float> result(out, out + uint64_t{n} * heads_ * kDim);
    if (packs() && (begin + n) % 64 == 0) {
      const uint32_t b = begin / 64;
      EXPECT_EQ(world.pack->kv_pack(world.pack.self(), pool, table->open_table[b], table->block_table[b], &world.error), TURBO_OK) << world.error.message;
      if (b > 0) table->open_table[b] = -1;  // the first keeps its sinks
    }
    return result;
  }
  /// All of kTokens; outputs of the last block's rows.
  std::vector<float> run(const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v) {
    std::vector<float> last;
    for (uint32_t begin = 0; begin < kTokens; begin += 64)
      last = step(begin, std::min(64u, kTokens - begin), &q[uint64_t{begin} * heads_ * kDim], &k[begin * kWidth], &v[begin * kWidth]);
    return last;
  }

  PackWorld world;
  turbo_kv_bytes bytes{sizeof(turbo_kv_bytes)};
  turbo_kv_pool* pool = nullptr;
  turbo_step_table* table = nullptr;

 private:
  uint32_t heads_, q_ = 0, k_ = 0, v_ = 0, out_ = 0;
  turbo_plan* plan_ = nullptr;
};

/// RMS of got - want by that of want, over the rows of the last block; want in doubles over the rows as read.
double relative_error(const std::vector<float>& got, const std::vector<float>& q, const std::vector<float>& k, const std::vector<float>& v, uint32_t heads) {
  const uint32_t first = kTokens / 64 * 64;
  double error = 0, size = 0;
  for (uint32_t p = first; p < kTokens; ++p)
    for (uint32_t h = 0; h < heads; ++h) {
      const uint32_t group = h / (heads / kKvHeads);
      const float* query = &q[(uint64_t{p} * heads + h) * kDim];
      std::vector<double> weight(p + 1), out(kDim, 0.0);
      double sum = 0;
      for (uint32_t j = 0; j <= p; ++j) {
        double dot = 0;
        for (uint32_t e = 0; e < kDim; ++e) dot += static_cast<double>(query[e]) * static_cast<double>(k[j * kWidth + group * kDim + e]);
        sum += weight[j] = std::exp(dot / std::sqrt(kDim));
      }
      for (uint32_t j = 0; j <= p; ++j)
        for (uint32_t e = 0; e < kDim; ++e) out[e] += weight[j] / sum * static_cast<double>(v[j * kWidth + group * kDim + e]);
      for (uint32_t e = 0; e < kDim; ++e) {
        const double is = static_cast<double>(got[((p - first) * uint64_t{heads} + h) * kDim + e]);
        error += (is - out[e]) * (is - out[e]);
        size += out[e] * out[e];
      }
    }
  return std::sqrt(error / size);
}

// Queries of packed keys are rounded to int8; nothing else differs from the plain form by more than float's rounding.
double tolerance(const std::string& k) { return k[0] == 'f' || k[0] == 'b' ? 1e-4 : 0.03; }

TEST(KvPairs, EveryKeyCodecWorksWithEveryValueCodec) {
  const std::vector<float> k = normals(kTokens * kWidth, 1), v = normals(kTokens * kWidth, 2);
  std::map<std::string, std::vector<float>> keys, values;
  for (const char* name : kCodecs) {
    keys[name] = rows_as_read(name, TURBO_KV_SIDE_K, k);
    values[name] = rows_as_read(name, TURBO_KV_SIDE_V, v);
  }
  uint32_t n = 0;
  for (const auto& [k_name, k_rows] : keys)
    for (const auto& [v_name, v_rows] : values) {
      const uint32_t ratio = kRatios[n++ % 3], heads = kKvHeads * ratio;
      const std::vector<float> q = normals(uint64_t{kTokens} * heads * kDim, 3);
      Attention attention(k_name, v_name, ratio);
      EXPECT_LT(relative_error(attention.run(q, k, v), q, k_rows, v_rows, heads), tolerance(k_name)) << k_name << " and " << v_name << " ratio " << ratio;
    }
  EXPECT_EQ(n, 196u);
}

TEST(KvPairs, AnyNumberOfQueryHeadsSharesAKvHead) {
  const std::vector<float> k = normals(kTokens * kWidth, 4), v = normals(kTokens * kWidth, 5);
  for (const auto& [k_name, v_name] : {std::pair{"f16", "f16"}, {"tq3", "tq3"}, {"tq2", "f16"}, {"f16", "rq3_iso"}, {"q8", "tq4"}, {"rq4_planar", "fp8_e4m3"}}) {
    const std::vector<float> k_rows = rows_as_read(k_name, TURBO_KV_SIDE_K, k), v_rows = rows_as_read(v_name, TURBO_KV_SIDE_V, v);
    for (const uint32_t ratio : kRatios) {
      const uint32_t heads = kKvHeads * ratio;
      const std::vector<float> q = normals(uint64_t{kTokens} * heads * kDim, 6);
      Attention attention(k_name, v_name, ratio);
      EXPECT_LT(relative_error(attention.run(q, k, v), q, k_rows, v_rows, heads), tolerance(k_name)) << k_name << " and " << v_name << " ratio " << ratio;
    }
  }
}

// A copied page reads as the page; a sequence cut back inside its open block and continued reads as one that never
// had the rows beyond.
TEST(KvPairs, CopiedPagesAndSequencesCutBackReadTheSame) {
  const std::vector<float> k = normals(kTokens * kWidth, 7), v = normals(kTokens * kWidth, 8), q = normals(kTokens * kWidth, 9),
                           other_k = normals(kTokens * kWidth, 10), other_v = normals(kTokens * kWidth, 11);
  for (const auto& [k_name, v_name] : {std::pair{"tq3", "rq4_iso"}, {"tq2", "q8"}, {"f16", "rq3_planar"}, {"q4", "fp8_e5m2"}}) {
    const std::string where = std::string(k_name) + " and " + v_name;
    Attention attention(k_name, v_name, 1);
    const std::vector<float> want = attention.run(q, k, v);
    const auto again = [&](uint32_t begin) {
      const std::vector<float> got = attention.step(begin, kTokens - begin, &q[begin * kWidth], &k[begin * kWidth], &v[begin * kWidth]);
      return std::equal(got.begin(), got.end(), want.begin() + (begin - 128) * kWidth);
    };
    EXPECT_TRUE(again(140)) << where;
    // Rows from 140 on are given up and others come; then those too.
    attention.step(140, 10, &q[140 * kWidth], &other_k[140 * kWidth], &other_v[140 * kWidth]);
    EXPECT_TRUE(again(140)) << where;
    const auto* p = attention.world.pack.table();
    void* self = attention.world.pack.self();
    turbo_step_table* t = attention.table;
    const int32_t source = t->block_table[1], copy = static_cast<int32_t>(kBlocks);
    ASSERT_EQ(p->kv_copy(self, attention.pool, source, copy, TURBO_KV_FORM_PACKED, &attention.world.error), TURBO_OK);
    std::vector<uint8_t> garbage(attention.bytes.block_bytes, 0);
    ASSERT_EQ(p->kv_write(self, attention.pool, source, TURBO_KV_FORM_PACKED, garbage.data(), garbage.size(), &attention.world.error), TURBO_OK);
    EXPECT_FALSE(again(140)) << where << ": the page is not read";
    t->block_table[1] = copy;
    EXPECT_TRUE(again(140)) << where;
    if (!attention.packs()) continue;
    const int32_t open = t->open_table[2], open_copy = static_cast<int32_t>(kBlocks + 1);
    ASSERT_EQ(p->kv_copy(self, attention.pool, open, open_copy, TURBO_KV_FORM_OPEN, &attention.world.error), TURBO_OK);
    t->open_table[2] = open_copy;
    EXPECT_TRUE(again(149)) << where;
  }
}

}  // namespace
}  // namespace turbo::test
