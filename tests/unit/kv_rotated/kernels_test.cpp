// Attention on packed pages, kernel by kernel: equal bits on every ISA and for every cut, garbage in padding, and
// agreement with plain doubles.
#include "support.h"

namespace turbo::test {
namespace {

constexpr uint32_t kQueries = 7;

// A page of random vectors, 64 rows.
std::vector<uint8_t> page_of_rows(const Scheme& s, const std::vector<float>& rows, uint8_t garbage) {
  std::vector<uint8_t> page(s.page.bytes, garbage);
  for (uint64_t r = 0; r < kPageRows; ++r)
    EXPECT_EQ(scalar_kernels().encode(s, &rows[r * s.d], &page[code_offset(s.page, r)], &page[scale_offset(s.page, r)]), kEncoded);
  return page;
}

uint64_t prepared_floats(uint32_t d) { return (d + 63) / 64 * 16 + 16; }

struct Attention {
  std::vector<float> scores, out;
  bool operator==(const Attention& o) const {
    return same_bits(scores.data(), o.scores.data(), scores.size()) && same_bits(out.data(), o.out.data(), out.size());
  }
};

// Scores and weighted sums of rows [begin, begin + n) in runs of at most `cut`, `per_call` queries at a time.
Attention attend(const Kernels& k, const Scheme& s, const std::vector<uint8_t>& page, uint32_t begin, uint32_t n, uint32_t cut, uint32_t per_call,
                 const std::vector<float>& prepared, const std::vector<float>& weights) {
  const uint64_t stride = prepared_floats(s.d);
  Attention a{std::vector<float>(kQueries * 64, -1.0f), std::vector<float>(uint64_t{kQueries} * s.d, 0.0f)};
  const uint8_t* nowhere = reinterpret_cast<const uint8_t*>(uintptr_t{4096});  // a page ahead is never read
  for (uint32_t q = 0; q < kQueries; q += per_call)
    for (uint32_t from = 0; from < n; from += cut) {
      const PackedRun run = {page.data(), begin + from, std::min(cut, n - from), std::min(per_call, kQueries - q), from % 2 ? nowhere : nullptr};
      k.packed_scores(s, run, &prepared[q * stride], stride, &a.scores[q * 64 + from], 64);
      k.packed_values(s, run, &weights[q * 64 + from], 64, &a.out[uint64_t{q} * s.d], s.d);
    }
  return a;
}

std::vector<Options> option_sets() {
  std::vector<Options> sets(3);
  sets[1].group = 32;
  sets[2].wide_scale = true;
  return sets;
}

TEST(PackedAttention, BitsAreTheSameOnEveryIsaForEveryCutAndWithGarbageBetween) {
  std::mt19937 random(4);
  for (const uint32_t d : {16u, 48u, 64u, 80u, 96u, 112u, 128u, 144u, 160u, 192u, 256u, 512u})
    for (const char* name : {"tq2", "tq3", "rq4_iso"})
      for (const Options& options : option_sets()) {
        const SchemeTables tables(mode_of(name), options, TURBO_KV_SIDE_K, d);
        const Scheme& s = tables.scheme();
        const std::vector<float> rows = normals(d, 64 * d), query = normals(d + 1, kQueries * d), raw = normals(d + 2, kQueries * 64);
        const std::vector<uint8_t> page = page_of_rows(s, rows, 0x00), poisoned = page_of_rows(s, rows, 0xff);
        std::vector<float> prepared(kQueries * prepared_floats(d)), weights;
        for (const float w : raw) weights.push_back(std::fabs(w));
        for (uint32_t q = 0; q < kQueries; ++q) scalar_kernels().prepare_query(s, &query[q * d], &prepared[q * prepared_floats(d)]);
        const uint32_t begin = random() % 60, n = 1 + random() % (64 - begin);
        const Attention want = attend(scalar_kernels(), s, page, begin, n, n, kQueries, prepared, weights);
        std::vector<float> finished(d);
        scalar_kernels().finish_output(s, want.out.data(), finished.data());
        for (const auto& [isa, k] : all_kernels()) {
          const std::string where = std::string(name) + " d " + std::to_string(d) + " group " + std::to_string(options.group) + " " + isa;
          for (const uint32_t per_call : {1u, 2u, 3u, 4u, 7u}) {
            const uint32_t cut = 1 + random() % n;
            ASSERT_TRUE(attend(*k, s, page, begin, n, n, per_call, prepared, weights) == want) << where << " queries " << per_call;
            ASSERT_TRUE(attend(*k, s, poisoned, begin, n, cut, per_call, prepared, weights) == want) << where << " cut " << cut;
          }
          std::vector<float> again(prepared.size()), output(d);
          for (uint32_t q = 0; q < kQueries; ++q) k->prepare_query(s, &query[q * d], &again[q * prepared_floats(d)]);
          ASSERT_TRUE(same_bits(again.data(), prepared.data(), again.size())) << where;
          k->finish_output(s, want.out.data(), output.data());
          ASSERT_TRUE(same_bits(output.data(), finished.data(), d)) << where;
        }
      }
}

// All of a page, so that the rows before its end and the scales behind it are as near as they get.
TEST(PackedAttention, WholePagesReadNothingBehindThem) {
  for (const uint32_t d : {16u, 80u, 144u})
    for (const Mode& mode : modes()) {
      const SchemeTables tables(mode, {}, 0, d);
      const std::vector<uint8_t> page = page_of_rows(tables.scheme(), normals(1, 64 * d), 0xff);  // heap of its own: sanitizers see its end
      std::vector<float> prepared(kQueries * prepared_floats(d)), weights(kQueries * 64, 0.5f);
      const std::vector<float> query = normals(2, d);
      for (uint32_t q = 0; q < kQueries; ++q) widest_kernels().prepare_query(tables.scheme(), query.data(), &prepared[q * prepared_floats(d)]);
      const Attention want = attend(scalar_kernels(), tables.scheme(), page, 0, 64, 64, kQueries, prepared, weights);
      for (const auto& [isa, k] : all_kernels()) EXPECT_TRUE(attend(*k, tables.scheme(), page, 0, 64, 64, kQueries, prepared, weights) == want) << isa;
    }
}

std::vector<double> softmax(const std::vector<double>& scores) {
  double top = -INFINITY, sum = 0;
  for (const double s : scores) top = std::max(top, s);
  std::vector<double> p;
  for (const double s : scores) p.push_back(std::exp(s - top));
  for (const double v : p) sum += v;
  for (double& v : p) v /= sum;
  return p;
}
double divergence(const std::vector<double>& p, const std::vector<double>& q) {
  double kl = 0;
  for (size_t i = 0; i < p.size(); ++i) kl += p[i] * std::log(p[i] / q[i]);
  return kl;
}

TEST(PackedAttention, AgreesWithDecodeThenAttentionInDouble) {
  for (const uint32_t d : {64u, 80u, 96u, 128u, 256u})
    for (const Mode& mode : modes())
      for (const Options& options : option_sets()) {
        const SchemeTables k_tables(mode, options, TURBO_KV_SIDE_K, d), v_tables(mode, options, TURBO_KV_SIDE_V, d);
        const Scheme &ks = k_tables.scheme(), &vs = v_tables.scheme();
        const std::vector<float> keys = normals(d, 64 * d), values = normals(d + 1, 64 * d), queries = normals(d + 2, kQueries * d);
        const std::vector<uint8_t> k_page = page_of_rows(ks, keys, 0xff), v_page = page_of_rows(vs, values, 0xff);
        const Kernels& k = widest_kernels();
        const std::string where = std::string(mode.name) + " d " + std::to_string(d);
        double kl = 0;
        for (uint32_t q = 0; q < kQueries; ++q) {
          const std::vector<double> query(&queries[q * d], &queries[q * d] + d), rotated = reference_rotate(ks.rotation, query.data());
          std::vector<float> prepared(prepared_floats(d)), rotated_f32(d), scores(64);
          k.prepare_query(ks, &queries[q * d], prepared.data());
          k.rotate(ks.rotation, &queries[q * d], rotated_f32.data());
          k.packed_scores(ks, {k_page.data(), 0, 64, 1, nullptr}, prepared.data(), prepared.size(), scores.data(), 64);
          std::vector<double> exact(64), packed(64);
          for (uint64_t r = 0; r < 64; ++r) {
            const std::vector<double> y = reference_levels(ks, k_page.data(), r);
            double dot = 0, size = 0;
            for (uint32_t i = 0; i < d; ++i) dot += rotated[i] * y[i], size += std::fabs(rotated[i] * y[i]);
            EXPECT_NEAR(reference_score_f32(ks, k_page.data(), r, rotated_f32.data()), dot, 1e-5 * size) << where;
            exact[r] = dot / std::sqrt(d);
            packed[r] = static_cast<double>(scores[r]) / std::sqrt(d);
          }
          kl += divergence(softmax(exact), softmax(packed)) / kQueries;

          const std::vector<double> p = softmax(exact);
          const std::vector<float> weights(p.begin(), p.end());
          std::vector<float> sum(d, 0.0f), output(d);
          k.packed_values(vs, {v_page.data(), 0, 64, 1, nullptr}, weights.data(), 64, sum.data(), d);
          k.finish_output(vs, sum.data(), output.data());
          std::vector<double> rotated_sum(d, 0.0), largest(1, 0.0);
          for (uint64_t r = 0; r < 64; ++r) {
            const std::vector<double> y = reference_levels(vs, v_page.data(), r);
            for (uint32_t i = 0; i < d; ++i) rotated_sum[i] += static_cast<double>(weights[r]) * y[i], largest[0] = std::max(largest[0], std::fabs(y[i]));
          }
          const std::vector<double> wide(output.begin(), output.end()), again = reference_rotate(vs.rotation, wide.data());
          for (uint32_t i = 0; i < d; ++i) ASSERT_NEAR(again[i], rotated_sum[i], 1e-5 * largest[0]) << where;
        }
        EXPECT_LE(kl, 1e-3) << where;
      }
}

TEST(PackedAttention, QueriesThatAreZeroHugeOrNoNumbers) {
  const SchemeTables tables(mode_of("tq4"), {}, 0, 128);
  const Scheme& s = tables.scheme();
  const std::vector<uint8_t> page = page_of_rows(s, normals(1, 64 * 128), 0xff);
  const auto score = [&](const Kernels& k, float value) {
    const std::vector<float> query(128, value);
    std::vector<float> prepared(prepared_floats(128)), scores(64);
    k.prepare_query(s, query.data(), prepared.data());
    k.packed_scores(s, {page.data(), 0, 64, 1, nullptr}, prepared.data(), prepared.size(), scores.data(), 64);
    return scores;
  };
  for (const auto& [isa, k] : all_kernels()) {
    for (const float x : score(*k, 0.0f)) EXPECT_EQ(x, 0.0f) << isa;
    for (const float x : score(*k, 1e-40f)) EXPECT_LE(std::fabs(x), 1e-30f) << isa;
    for (const float x : score(*k, 1e30f)) EXPECT_TRUE(std::isfinite(x)) << isa;
    for (const float bad : {std::nanf(""), INFINITY})
      for (const float x : score(*k, bad)) EXPECT_TRUE(std::isnan(x)) << isa;
  }
}

}  // namespace
}  // namespace turbo::test
