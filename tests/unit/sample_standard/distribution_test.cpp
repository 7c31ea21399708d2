// The probability table against a second, naive implementation, and the draw against the table.
#include "distribution.h"

#include <gtest/gtest.h>
#include <turbo/kernel/random.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

using namespace turbo;
using namespace turbo::sample_standard;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Full sort, no pruning, straight from the README.
std::map<int32_t, double> naive(const SampleRow& row, bool own_exp = true) {
  std::vector<float> x(row.logits.begin(), row.logits.end());
  for (uint32_t t = 0; t < x.size(); ++t)
    if (!row.allowed(t)) x[t] = -kInf;
  for (size_t i = 0; i < row.bias_ids.size(); ++i) {
    float& v = x[static_cast<size_t>(row.bias_ids[i])];
    v = row.bias_values[i] <= -100 ? -kInf : v + row.bias_values[i];
  }
  std::map<int32_t, int> all, generated;
  for (const int32_t t : row.prompt) ++all[t];
  for (const auto list : {row.output, row.path})
    for (const int32_t t : list) ++all[t], ++generated[t];
  for (const auto& [t, n] : all) {
    float& v = x[static_cast<size_t>(t)];
    v = v > 0 ? v / row.repetition_penalty : v * row.repetition_penalty;
  }
  for (const auto& [t, n] : generated)
    x[static_cast<size_t>(t)] = (x[static_cast<size_t>(t)] - row.frequency_penalty * static_cast<float>(n)) - row.presence_penalty;

  std::vector<int32_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)]; });
  const float max = x[static_cast<size_t>(order[0])];
  std::vector<double> w;
  for (const int32_t t : order) {
    const float z = (x[static_cast<size_t>(t)] - max) / row.temperature;
    w.push_back(own_exp ? static_cast<double>(turbo_exp(z)) : std::exp(static_cast<double>(z)));
  }
  size_t n = w.size();
  if (row.top_k > 0 && static_cast<size_t>(row.top_k) < n) {
    const float least = x[static_cast<size_t>(order[static_cast<size_t>(row.top_k) - 1])];
    n = static_cast<size_t>(std::count_if(x.begin(), x.end(), [&](float v) { return v >= least; }));
  }
  const double total = std::accumulate(w.begin(), w.begin() + static_cast<long>(n), 0.0);
  if (row.top_p < 1) {
    double before = 0;
    size_t kept = 0;
    while (kept < n && (kept == 0 || before < static_cast<double>(row.top_p) * total)) before += w[kept++];
    n = kept;
  }
  size_t kept = 0;
  while (kept < n && w[kept] > 0 && (kept == 0 || w[kept] >= static_cast<double>(row.min_p))) ++kept;
  n = kept;
  std::vector<size_t> set(n);
  std::iota(set.begin(), set.end(), 0);
  if (row.typical_p < 1) {
    const double mass = std::accumulate(w.begin(), w.begin() + static_cast<long>(n), 0.0);
    double entropy = 0;
    for (const size_t i : set) entropy -= w[i] / mass * std::log(w[i] / mass);
    const auto far = [&](size_t i) { return std::fabs(-std::log(w[i] / mass) - entropy); };
    std::stable_sort(set.begin(), set.end(), [&](size_t a, size_t b) { return far(a) < far(b) - 1e-12; });
    double before = 0;
    size_t m = 0;
    while (m < set.size() && (m == 0 || before < static_cast<double>(row.typical_p) * mass)) before += w[set[m++]];
    set.resize(m);
  }
  double mass = 0;
  for (const size_t i : set) mass += w[i];
  std::map<int32_t, double> table;
  for (const size_t i : set) table[order[i]] = w[i] / mass;
  return table;
}

std::vector<float> random_logits(uint64_t seed, uint64_t n, double spread) {
  std::vector<float> x(n);
  for (uint64_t i = 0; i < n; ++i) x[i] = static_cast<float>((turbo_uniform(seed, i) - 0.5) * spread);
  return x;
}

void expect_table(Distribution& d, const SampleRow& row, const std::map<int32_t, double>& expected, double tolerance) {
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  double sum = 0, cumulative = 0;
  std::map<int32_t, double> got;
  std::vector<Distribution::Entry> table = d.table();
  for (const auto& e : table) got[e.id] = e.probability, sum += e.probability;
  ASSERT_EQ(got.size(), table.size()) << "a token twice";
  ASSERT_EQ(got.size(), expected.size());
  for (const auto& [id, p] : expected) {
    ASSERT_TRUE(got.count(id)) << id;
    EXPECT_NEAR(got[id], p, tolerance) << id;
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
  for (const auto& e : table) {  // the middle of each interval of the inverse CDF
    ASSERT_EQ(d.prepare(row), TURBO_OK);
    if (e.probability > 1e-9) { EXPECT_EQ(d.draw(cumulative + e.probability / 2), e.id); }
    cumulative += e.probability;
  }
}

}  // namespace

TEST(Distribution, EqualsEnumerationForEveryFilterAndTheirMixes) {
  Distribution d;
  int cases = 0;
  for (uint64_t seed = 0; seed < 12; ++seed)
    for (const uint64_t vocab : {1u, 2u, 5u, 8u, 63u, 64u, 65u, 200u})
      for (int mix = 0; mix < 64; ++mix) {
        const auto logits = random_logits(seed * 1000 + vocab, vocab, 2.0 + 3.0 * static_cast<double>(seed));
        std::vector<uint32_t> mask((vocab + 31) / 32);
        for (size_t i = 0; i < mask.size(); ++i) mask[i] = static_cast<uint32_t>(turbo_mix64(seed + i)) | 1u;
        std::vector<int32_t> tokens;
        for (int i = 0; i < 6; ++i) tokens.push_back(static_cast<int32_t>(turbo_mix64(seed * 7 + static_cast<uint64_t>(i)) % vocab));
        const int32_t ids[] = {0, static_cast<int32_t>(vocab - 1)};
        const float biases[] = {1.5f, -2.0f};
        SampleRow row;
        row.logits = logits;
        row.temperature = 0.3f + 0.4f * static_cast<float>(seed % 5);
        if (mix & 1) row.top_k = 1 + static_cast<int32_t>(seed % 7);
        if (mix & 2) row.top_p = 0.1f + 0.08f * static_cast<float>(seed);
        if (mix & 4) row.min_p = 0.02f * static_cast<float>(seed);
        if (mix & 8) row.typical_p = 0.2f + 0.06f * static_cast<float>(seed);
        if (mix & 16) {
          row.repetition_penalty = 1.3f;
          row.presence_penalty = 0.4f;
          row.frequency_penalty = -0.3f;
          row.prompt = std::span(tokens).subspan(0, 2);
          row.output = std::span(tokens).subspan(2, 2);
          row.path = std::span(tokens).subspan(4, 2);
        }
        if (mix & 32) {
          row.mask = mask;
          row.bias_ids = std::span(ids, vocab > 1 ? 2 : 1);
          row.bias_values = std::span(biases, vocab > 1 ? 2 : 1);
        }
        SCOPED_TRACE(testing::Message() << "seed " << seed << " vocab " << vocab << " mix " << mix);
        expect_table(d, row, naive(row), 1e-9);
        if (HasFatalFailure()) return;
        ++cases;
      }
  EXPECT_EQ(cases, 12 * 8 * 64);
}

TEST(Distribution, IsTheSoftmaxItSaysItIs) {
  Distribution d;
  const auto logits = random_logits(3, 50, 12);
  SampleRow row;
  row.logits = logits;
  row.temperature = 0.8f;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  const auto expected = naive(row, false);
  for (const auto& e : d.table()) EXPECT_NEAR(e.probability, expected.at(e.id), 1e-6);
}

TEST(Distribution, TopKKeepsTiesAtTheKth) {
  const float logits[] = {1, 3, 2, 2, 2, 0, 2};
  Distribution d;
  SampleRow row;
  row.logits = logits;
  row.top_k = 2;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  std::vector<int32_t> ids;
  for (const auto& e : d.table()) ids.push_back(e.id);
  EXPECT_EQ(ids, (std::vector<int32_t>{1, 2, 3, 4, 6}));
}

TEST(Distribution, TopPAlwaysKeepsTheTopToken) {
  const float logits[] = {0, 5, 0};
  Distribution d;
  SampleRow row;
  row.logits = logits;
  row.top_p = 0;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  ASSERT_EQ(d.table().size(), 1u);
  EXPECT_EQ(d.draw(0.999), 1);
}

TEST(Distribution, TopPCutsWhereThePrecedingMassReachesP) {
  const float logits[] = {0, 0, 0, 0};  // a quarter each
  Distribution d;
  SampleRow row;
  row.logits = logits;
  row.top_p = 0.5f;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  EXPECT_EQ(d.table().size(), 2u);
  row.top_p = 0.51f;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  EXPECT_EQ(d.table().size(), 3u);
}

TEST(Distribution, GreedyTiesGoToTheLowerId) {
  std::vector<float> logits(1000, 1.0f);
  logits[500] = logits[77] = logits[999] = 2.0f;
  Distribution d;
  SampleRow row;
  row.logits = logits;
  row.temperature = 0;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  EXPECT_EQ(d.draw(0.9), 77);
}

TEST(Distribution, EqualLogitsAreDrawnInIdOrder) {
  const float logits[] = {1, 1, 1, 1};
  Distribution d;
  SampleRow row;
  row.logits = logits;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(d.prepare(row), TURBO_OK);
    EXPECT_EQ(d.draw(0.25 * i), i);  // at the edge the cumulative mass must exceed u
    ASSERT_EQ(d.prepare(row), TURBO_OK);
    EXPECT_EQ(d.draw(0.25 * i + 0.2), i);
  }
}

TEST(Distribution, InfinitiesShareTheMassAndMinusInfinityIsNeverDrawn) {
  const float logits[] = {1, kInf, -kInf, kInf, 100};
  Distribution d;
  SampleRow row;
  row.logits = logits;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  const auto table = d.table();
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].id, 1);
  EXPECT_EQ(table[1].id, 3);
  EXPECT_DOUBLE_EQ(table[0].probability, 0.5);
  EXPECT_FLOAT_EQ(d.logprob(1), std::log(0.5f));
  EXPECT_EQ(d.logprob(4), -kInf);
  const float some[] = {-kInf, 2, -kInf};
  row.logits = some;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  EXPECT_EQ(d.draw(0.999999), 1);
}

TEST(Distribution, BadRowsEndWithTheirStatus) {
  Distribution d;
  SampleRow row;
  const float nan[] = {1, NAN, 2};
  row.logits = nan;
  EXPECT_EQ(d.prepare(row), TURBO_CORRUPT_INPUT);
  row.temperature = 0;
  EXPECT_EQ(d.prepare(row), TURBO_CORRUPT_INPUT);
  std::vector<float> long_row(130, 0.0f);
  for (const size_t at : {0u, 63u, 64u, 127u, 129u}) {
    long_row[at] = NAN;
    row.logits = long_row;
    EXPECT_EQ(d.prepare(row), TURBO_CORRUPT_INPUT) << at;
    long_row[at] = 0;
  }
  const float none[] = {-kInf, -kInf};
  row.logits = none;
  EXPECT_EQ(d.prepare(row), TURBO_NOT_FOUND);
  const float fine[] = {1, 2};
  const uint32_t nothing[] = {0xfffffffcu};  // only bits past the vocabulary
  row.logits = fine;
  row.mask = nothing;
  EXPECT_EQ(d.prepare(row), TURBO_NOT_FOUND);
  row.mask = {};
  for (float SampleRow::*field : {&SampleRow::temperature, &SampleRow::top_p, &SampleRow::min_p, &SampleRow::typical_p,
                                  &SampleRow::repetition_penalty, &SampleRow::presence_penalty, &SampleRow::frequency_penalty})
    for (const float value : {NAN, kInf, -kInf}) {
      SampleRow bad = row;
      bad.*field = value;
      EXPECT_EQ(d.prepare(bad), TURBO_INVALID_ARGUMENT);
    }
  const int32_t ids[] = {2};
  const float values[] = {1};
  row.bias_ids = ids;
  row.bias_values = values;
  EXPECT_EQ(d.prepare(row), TURBO_INVALID_ARGUMENT);
}

TEST(Distribution, TemperaturesFromTinyToHugeStayFinite) {
  Distribution d;
  const float logits[] = {-3e38f, 3e38f, 0, 3e38f};
  SampleRow row;
  row.logits = logits;
  for (const float t : {1e-45f, 1e-20f, 1.0f, 1e6f}) {
    row.temperature = t;
    ASSERT_EQ(d.prepare(row), TURBO_OK);
    ASSERT_EQ(d.table().size(), 2u);
    EXPECT_EQ(d.draw(0.25), 1);
    EXPECT_EQ(d.draw(0.75), 3);
  }
}

TEST(Distribution, ABannedTokenStaysBanned) {
  Distribution d;
  const float logits[] = {kInf, 1};
  const int32_t ids[] = {0, 0};
  const float values[] = {-100, 100};
  SampleRow row;
  row.logits = logits;
  row.bias_ids = ids;
  row.bias_values = values;
  ASSERT_EQ(d.prepare(row), TURBO_OK);
  EXPECT_EQ(d.draw(0), 1);
}

TEST(Distribution, PathPenaltiesEqualGeneratedTokens) {
  Distribution a, b;
  const auto logits = random_logits(5, 40, 6);
  const int32_t tokens[] = {3, 9, 9, 11, 3, 39, 20};
  SampleRow row;
  row.logits = logits;
  row.repetition_penalty = 1.2f;
  row.presence_penalty = 0.5f;
  row.frequency_penalty = 0.25f;
  row.prompt = std::span(tokens, 2);
  for (size_t split = 2; split <= 7; ++split) {
    SampleRow path = row, output = row;
    output.output = std::span(tokens).subspan(2);
    path.output = std::span(tokens).subspan(2, split - 2);
    path.path = std::span(tokens).subspan(split);
    ASSERT_EQ(a.prepare(path), TURBO_OK);
    ASSERT_EQ(b.prepare(output), TURBO_OK);
    const auto x = a.table(), y = b.table();
    ASSERT_EQ(x.size(), y.size());
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(x[i].id, y[i].id);
      EXPECT_EQ(x[i].probability, y[i].probability);  // the same bits
    }
  }
}

TEST(Distribution, HugeVocabularyAgreesWithTheFullSort) {
  Distribution d;
  constexpr uint64_t kVocab = 151669;
  for (const double spread : {30.0, 0.5}) {
    auto logits = random_logits(11, kVocab, spread);
    for (uint64_t i = 0; i < 400; ++i) logits[turbo_mix64(i) % kVocab] = static_cast<float>(spread);  // ties at the top
    SampleRow row;
    row.logits = logits;
    for (const int32_t top_k : {0, 1, 40, 1000, 100000}) {
      row.top_k = top_k;
      row.top_p = top_k == 0 ? 0.3f : 1.0f;
      ASSERT_EQ(d.prepare(row), TURBO_OK);
      const auto expected = naive(row);
      const auto table = d.table();
      ASSERT_EQ(table.size(), expected.size()) << top_k;
      for (const auto& e : table) ASSERT_NEAR(e.probability, expected.at(e.id), 1e-9);
    }
  }
}

TEST(Passes, BothIsaPathsGiveTheSameBits) {
  if (!has_fma()) GTEST_SKIP() << "no AVX2 here";
  for (const uint64_t n : {1u, 15u, 16u, 17u, 1000u, 4099u}) {
    auto x = random_logits(n, n, 300);
    x[n / 2] = -kInf;
    for (const float t : {0.1f, 1.0f, 3.7f}) EXPECT_EQ(weight_sum(x.data(), n, 150, t), weight_sum_portable(x.data(), n, 150, t)) << n;
  }
}

TEST(Passes, VectorExpEqualsTurboExp) {
  for (int i = 0; i < 200000; ++i) {
    const float x = -static_cast<float>(turbo_uniform(1, static_cast<uint64_t>(i)) * 90.0);
    ASSERT_EQ(weight_sum(&x, 1, 0, 1), static_cast<double>(turbo_exp(x))) << x;
  }
  for (const float x : {-0.0f, 0.0f, TURBO_EXP_LO, std::nextafter(TURBO_EXP_LO, -kInf), -kInf, -1e-40f})
    EXPECT_EQ(weight_sum(&x, 1, 0, 1), static_cast<double>(turbo_exp(x))) << x;
}

TEST(Passes, LnIsCloseEverywhere) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) EXPECT_NEAR(ln(x), std::log(x), 4e-16 * std::fabs(std::log(x)) + 2e-16) << x;
}
