// Row argmax and the chain kernels against their definitions, block by block on fibers.
#include <turbo/kernel/chain_ops.hpp>

#include <sys/mman.h>

#include <thread>

#include "kernels.h"

namespace turbo::kernels {
namespace {

using namespace turbo::gpu;

/// Rows of logits with a stride, and the outputs of a draft step. Poison everywhere.
struct Draft {
  uint32_t rows, vocab;
  uint64_t stride;
  std::vector<float> x;
  std::vector<ArgmaxRow> scratch;
  std::vector<int64_t> token, positions, draft_tokens, first_tokens, target_id;
  std::vector<float> probability;
  std::vector<uint32_t> nan;

  Draft(uint32_t rows, uint32_t vocab, uint64_t padding = 0)
      : rows(rows), vocab(vocab), stride(vocab + padding), x(rows * stride, NAN), scratch(rows, ArgmaxRow{}), token(rows, -77), probability(rows, -77), nan(rows) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = i % 2 ? kInf : NAN;  // what padding holds
    for (uint32_t r = 0; r < rows; ++r) std::fill_n(row(r), vocab, -5.0f);
  }
  float* row(uint32_t r) { return x.data() + r * stride; }
  DraftStepArgs args(uint32_t splits) {
    DraftStepArgs a{};
    a.logits = logit_rows(x.data(), stride, vocab, rows, splits);
    a.scratch = scratch.data();
    a.token = token.data();
    a.probability = probability.data();
    a.nan = nan.data();
    return a;
  }
  void run(uint32_t splits, bool resident = false, uint32_t threads = 64) { launch("draft_topk1_postprocess", rows * splits, args(splits), threads, resident); }
  void expect_right(const std::string& what = "") {
    for (uint32_t r = 0; r < rows; ++r) {
      const chain_ops::RowMax want = chain_ops::row_argmax(row(r), vocab);
      ASSERT_EQ(token[r], want.index) << what << " row " << r;
      ASSERT_EQ(nan[r] != 0, want.nan) << what << " row " << r;
      ASSERT_EQ(probability[r], 1);
      ASSERT_EQ(scratch[r].key, 0u);
      ASSERT_EQ(scratch[r].arrivals, 0u);
    }
  }
};

int64_t argmax_of(const std::vector<float>& x, uint32_t splits) {
  Draft draft(1, static_cast<uint32_t>(x.size()));
  draft.x = x;
  draft.run(splits);
  draft.expect_right();
  return draft.token[0];
}

}  // namespace

TEST(Argmax, GoldenKeys) {
  EXPECT_EQ(argmax_key(1.0f, 0), 0xBF800000FFFFFFFFull);
  EXPECT_EQ(argmax_key(1.0f, 5), 0xBF800000FFFFFFFAull);
  EXPECT_EQ(argmax_key(0.0f, 2), 0x80000000FFFFFFFDull);
  EXPECT_EQ(argmax_key(-0.0f, 1), 0x80000000FFFFFFFEull);
  EXPECT_EQ(argmax_key(-1.0f, 3), 0x407FFFFFFFFFFFFCull);
  EXPECT_EQ(argmax_key(NAN, 7), 0x0EB60D35FFFFFFF8ull);
  EXPECT_EQ(argmax_key(kInf, 151935), 0xFF800000FFFDAE80ull);
  EXPECT_EQ(argmax_key(-kInf, 0), 0x007FFFFFFFFFFFFFull);
  for (const float v : {1.0f, -1.0f, kInf, -kInf, 1e-45f, -1e-45f, 0.0f}) {
    EXPECT_EQ(key_value(argmax_key(v, 9)), v);
    EXPECT_EQ(key_index(argmax_key(v, 9)), 9u);
    EXPECT_GT(argmax_key(v, 0xfffffffe), 0u);
  }
}

TEST(Argmax, KeysOrderAsAScanDoes) {
  std::mt19937 rng(1);
  for (int round = 0; round < 100000; ++round) {
    float x[6];
    uint64_t best = 0;
    const uint32_t n = 1 + rng() % 6;
    for (uint32_t i = 0; i < n; ++i) {
      x[i] = rng() % 9 == 0 ? NAN : rng() % 9 == 0 ? (rng() % 2 ? kInf : -kInf) : odd_float(rng);
      best = std::max(best, argmax_key(x[i], i));
    }
    ASSERT_EQ(key_index(best), chain_ops::row_argmax(x, n).index);
  }
}

// T1 .. T11, at split counts that put the interesting places on edges.
TEST(Argmax, SmallCases) {
  for (const uint32_t splits : {1u, 2u, 7u, 64u}) {
    SCOPED_TRACE(splits);
    const uint32_t v = 700, split = argmax_split(v, splits);
    std::vector<float> x(v, -3.0f);
    const auto with = [&](std::initializer_list<std::pair<uint32_t, float>> places) {
      std::vector<float> y = x;
      for (const auto& [at, value] : places) y[at] = value;
      return argmax_of(y, splits);
    };
    EXPECT_EQ(with({{600, 4}, {20, 4}}), 20);
    EXPECT_EQ(with({{9, 4}, {8, 4}, {11, 4}}), 8);
    EXPECT_EQ(with({{0, 4}, {v - 1, 4}}), 0);
    if (split < v) { EXPECT_EQ(with({{split - 1, 4}, {split, 4}}), split - 1); }
    EXPECT_EQ(argmax_of(x, splits), 0);
    EXPECT_EQ(with({{100, -0.0f}, {650, 0.0f}}), 100);
    EXPECT_EQ(with({{100, 0.0f}, {650, -0.0f}}), 100);
    EXPECT_EQ(argmax_of(std::vector<float>(v, -0.0f), splits), 0);
    EXPECT_EQ(with({{5, NAN}, {300, 1}}), 300);
    const std::vector<float> finite = x;
    x.assign(v, -kInf);
    EXPECT_EQ(with({{333, NAN}}), 333);
    EXPECT_EQ(argmax_of(x, splits), 0);
    EXPECT_EQ(with({{444, -1e38f}}), 444);
    EXPECT_EQ(with({{444, kInf}, {222, kInf}}), 222);
    EXPECT_EQ(argmax_of(std::vector<float>(v, NAN), splits), 0);
    x.assign(v, std::numeric_limits<float>::lowest());
    EXPECT_EQ(with({{10, NAN}}), 10);
    x.assign(v, 0.0f);
    EXPECT_EQ(with({{200, 1e-45f}, {100, -1e-45f}}), 200);
    x.assign(v, -1e-45f);
    EXPECT_EQ(with({{77, -0.0f}}), 77);
  }
}

// T12, T15, T16, T17, V17.
TEST(Argmax, RandomRowsOfManyWidthsAndSplits) {
  std::mt19937 rng(2);
  for (const uint32_t vocab : {1u, 3u, 127u, 1023u, 1024u, 1025u, 8191u, 8192u, 8193u})
    for (const uint32_t splits : {1u, 2u, 7u, 64u})
      for (const uint64_t padding : {0u, 1u, 4u}) {
        Draft draft(2, vocab, padding);
        for (uint32_t r = 0; r < draft.rows; ++r)
          for (uint32_t i = 0; i < vocab; ++i) draft.row(r)[i] = r == 0 ? odd_float(rng) : as_bf16(static_cast<float>(rng() % 4096) / 128);
        draft.run(splits, splits == 7, vocab > 5000 ? kArgmaxThreads : 64);
        draft.expect_right("vocab " + std::to_string(vocab) + " splits " + std::to_string(splits));
      }
}

TEST(Argmax, ManyRows) {
  std::mt19937 rng(3);
  Draft draft(1500, 130, 2);
  for (uint32_t r = 0; r < draft.rows; ++r)
    for (uint32_t i = 0; i < draft.vocab; ++i) draft.row(r)[i] = static_cast<float>(rng() % 50);
  draft.run(1);
  draft.expect_right();
}

// T13, T14: the meeting places are clean after every launch, whatever its shape.
TEST(Argmax, OneInstanceServesManyLaunches) {
  std::mt19937 rng(4);
  Draft draft(3, 300);
  for (int round = 0; round < 1000; ++round) {
    draft.rows = 1 + rng() % 3;
    for (int i = 0; i < 20; ++i) draft.row(rng() % draft.rows)[rng() % 300] = static_cast<float>(rng() % 100);
    draft.run(1 + rng() % 3);
    draft.expect_right();
  }
}

// T18: rows 4 GiB apart, of which only the first page is ever touched.
TEST(Argmax, RowsBeyondTwoToTheThirtyOne) {
  constexpr uint64_t kStride = uint64_t{1} << 30, kRows = 4;
  void* const memory = mmap(nullptr, kStride * kRows * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) GTEST_SKIP() << "no address space of 16 GiB";
  Draft draft(kRows, 64);
  DraftStepArgs a = draft.args(2);
  a.logits.data = static_cast<const float*>(memory);
  a.logits.stride = kStride;
  for (uint64_t r = 0; r < kRows; ++r) static_cast<float*>(memory)[r * kStride + 10 + r] = 1;
  launch("draft_topk1_postprocess", 8, a);
  EXPECT_EQ(draft.token, (std::vector<int64_t>{10, 11, 12, 13}));
  munmap(memory, kStride * kRows * sizeof(float));
}

// T19, T20, T21.
TEST(DraftStep, WritesColumnsPositionsAndTargetIds) {
  std::mt19937 rng(5);
  Draft draft(5, 90);
  constexpr uint32_t kColumns = 4;
  draft.draft_tokens.assign(5 * kColumns, -55);
  for (uint32_t r = 0; r < 5; ++r) {
    draft.positions.push_back(r == 0 ? 0xffffffffll : r == 1 ? -1 : (int64_t{r} << 40) + 7);
    draft.first_tokens.push_back(1000 + r);
    for (uint32_t i = 0; i < 90; ++i) draft.row(r)[i] = static_cast<float>(rng() % 1000);
  }
  for (uint32_t i = 0; i < 90; ++i) draft.target_id.push_back(50000 + i * 3);
  const std::vector<int64_t> positions = draft.positions;
  std::vector<int64_t> want = draft.draft_tokens;
  for (uint32_t step = 0; step < 3; ++step) {
    DraftStepArgs a = draft.args(3);
    a.draft_tokens = draft.draft_tokens.data();
    a.draft_stride = kColumns;
    a.column = step + 1;
    a.first_tokens = step == 0 ? draft.first_tokens.data() : nullptr;
    a.positions = draft.positions.data();
    a.target_id = draft.target_id.data();
    launch("draft_topk1_postprocess", 15, a);
    for (uint32_t r = 0; r < 5; ++r) {
      const int64_t id = 50000 + chain_ops::row_argmax(draft.row(r), 90).index * 3;
      if (step == 0) want[r * kColumns] = 1000 + r;
      want[r * kColumns + step + 1] = id;
      EXPECT_EQ(draft.token[r], id);
      EXPECT_EQ(draft.positions[r], positions[r] + step + 1);
    }
    EXPECT_EQ(draft.draft_tokens, want);
    for (float& x : draft.x) x = static_cast<float>(rng() % 1000);
  }
}

namespace {

/// A verification with all its buffers, poisoned; logits whose maxima are the wanted targets.
struct Verify {
  uint32_t b, w, vocab, splits;
  uint64_t stride;
  std::vector<float> x;
  std::vector<int64_t> candidates;
  std::vector<int32_t> predict, accept_index, num_correct, accept_lens, target;
  std::vector<uint32_t> nan, row_nan;
  std::vector<uint64_t> keys;
  uint32_t arrivals = 0;

  Verify(uint32_t b, uint32_t w, uint32_t vocab, uint32_t splits, uint64_t padding = 0)
      : b(b), w(w), vocab(vocab), splits(splits), stride(vocab + padding), x(b * w * stride, -1), candidates(b * w, -1), nan(b), row_nan(b * w), keys(b * w) { poison(); }
  void poison() {
    predict.assign(b * w, 0x5a5a5a5a);
    accept_index.assign(b * w, 0x5a5a5a5a);
    num_correct.assign(b, 0x5a5a5a5a);
    accept_lens.assign(b, 0x5a5a5a5a);
    target.assign(b * w, 0x5a5a5a5a);
  }
  void clear_scratch() {
    arrivals = 0;
    std::fill(keys.begin(), keys.end(), 0);
    std::fill(row_nan.begin(), row_nan.end(), 0);
  }
  float* row(uint32_t r) { return x.data() + r * stride; }
  void set_target(uint32_t r, int32_t token) {
    std::fill_n(row(r), vocab, -1.0f);
    row(r)[token] = 2;
  }
  ChainVerifyArgs args() {
    ChainVerifyArgs a{};
    a.logits = logit_rows(x.data(), stride, vocab, b * w, splits);
    a.scratch = {&arrivals, row_nan.data(), keys.data()};
    a.candidates = candidates.data();
    a.n_requests = b;
    a.width = w;
    a.predict = predict.data();
    a.accept_index = accept_index.data();
    a.num_correct = num_correct.data();
    a.accept_lens = accept_lens.data();
    a.target = target.data();
    a.nan = nan.data();
    return a;
  }
  void run(bool resident = false, uint32_t threads = 32) { launch("greedy_chain_verify", b * w * splits, args(), threads, resident); }
  struct Results {
    std::vector<int32_t> predict, accept_index, num_correct, accept_lens;
    bool operator==(const Results&) const = default;
  };
  Results results() const { return {predict, accept_index, num_correct, accept_lens}; }
  Results wanted() {
    std::vector<int32_t> argmax;
    for (uint32_t r = 0; r < b * w; ++r) argmax.push_back(static_cast<int32_t>(chain_ops::row_argmax(row(r), vocab).index));
    Results want{predict, accept_index, num_correct, accept_lens};
    chain_ops::verify(candidates.data(), argmax.data(), b, w, want.predict.data(), want.accept_index.data(), want.num_correct.data(), want.accept_lens.data());
    return want;
  }
  void expect_right() {
    ASSERT_TRUE(results() == wanted());
    ASSERT_EQ(arrivals, 0u);
    for (const uint64_t key : keys) ASSERT_EQ(key, 0u);
    for (const uint32_t n : row_nan) ASSERT_EQ(n, 0u);
  }
  /// Random targets, and candidates that are right up to a random place.
  void fill(std::mt19937& rng, bool rounded = false) {
    for (uint32_t i = 0; i < b; ++i)
      for (uint32_t j = 0; j < w; ++j) {
        const uint32_t r = i * w + j;
        for (uint32_t k = 0; k < vocab; ++k) row(r)[k] = rounded ? as_bf16(2 + static_cast<float>(rng() % 1000) / 4000) : static_cast<float>(rng() % 100000);
        candidates[r] = rng() % vocab;
      }
    for (uint32_t i = 0; i < b; ++i) {
      const uint32_t correct = (i + rng()) % w;
      for (uint32_t j = 0; j < correct; ++j) candidates[i * w + j + 1] = chain_ops::row_argmax(row(i * w + j), vocab).index;
      for (uint32_t j = correct + 1; j + 1 < w; ++j)  // right again behind the first mistake
        if (rng() % 2) candidates[i * w + j + 1] = chain_ops::row_argmax(row(i * w + j), vocab).index;
    }
  }
};

Verify golden() {
  Verify v(4, 4, 10, 3);
  v.candidates = {5, 7, 9, 2, 1, 1, 1, 1, 4, 3, 3, 6, 2, 0, 5, 5};
  const int32_t targets[] = {7, 9, 4, 1, 1, 1, 1, 6, 0, 3, 3, 6, 0, 5, 1, 5};
  for (uint32_t r = 0; r < 16; ++r) v.set_target(r, targets[r]);
  return v;
}

}  // namespace

TEST(ChainVerify, Goldens) {
  Verify v = golden();
  v.run();
  EXPECT_EQ(v.predict, (std::vector<int32_t>{7, 9, 4, 0, 1, 1, 1, 6, 0, 0, 0, 0, 0, 5, 1, 0}));
  EXPECT_EQ(v.accept_index, (std::vector<int32_t>{0, 1, 2, -1, 4, 5, 6, 7, 8, -1, -1, -1, 12, 13, 14, -1}));
  EXPECT_EQ(v.num_correct, (std::vector<int32_t>{2, 3, 0, 2}));
  EXPECT_EQ(v.accept_lens, (std::vector<int32_t>{3, 4, 1, 3}));
  v.expect_right();
  Verify two(2, 2, 10, 1);
  two.candidates = {5, 7, 5, 6};
  const int32_t targets[] = {7, 3, 7, 6};
  for (uint32_t r = 0; r < 4; ++r) two.set_target(r, targets[r]);
  two.run();
  EXPECT_EQ(two.predict, (std::vector<int32_t>{7, 3, 7, 0}));
  EXPECT_EQ(two.accept_index, (std::vector<int32_t>{0, 1, 2, -1}));
  EXPECT_EQ(two.num_correct, (std::vector<int32_t>{1, 0}));
  EXPECT_EQ(two.accept_lens, (std::vector<int32_t>{2, 1}));
}

// V1, V2, V3, V5, V9, V17.
TEST(ChainVerify, EveryEntryEqualsTheDefinition) {
  std::mt19937 rng(6);
  for (const uint32_t w : {1u, 2u, 3u, 4u, 7u, 8u})
    for (const uint32_t b : {1u, 2u, 5u, 16u}) {
      Verify v(b, w, 33 + rng() % 60, 1 + rng() % 3, rng() % 3);
      for (int round = 0; round < 3; ++round) {
        v.fill(rng, round == 1);
        v.poison();
        v.run(round == 2 && b < 5);
        v.expect_right();
        if (HasFatalFailure()) return;
      }
    }
  for (const uint32_t b : {128u, 257u}) {
    Verify v(b, 2, 20, 1);
    v.fill(rng);
    v.run();
    v.expect_right();
  }
  for (const uint32_t splits : {1u, 2u, 7u, 64u}) {
    std::mt19937 same(7);
    Verify v(3, 4, 1000, splits);
    v.fill(same);
    v.run(splits < 10, kArgmaxThreads);
    v.expect_right();
  }
}

// V6, V7: a changed input changes the outputs, so the comparison can fail.
TEST(ChainVerify, NegativeControls) {
  Verify v = golden();
  v.run();
  const Verify::Results before = v.results();
  v.set_target(1, 8);
  v.poison();
  v.run();
  EXPECT_FALSE(v.results() == before);
  EXPECT_EQ(v.num_correct[0], 1);
  Verify swapped = golden();
  std::swap_ranges(swapped.candidates.begin(), swapped.candidates.begin() + 4, swapped.candidates.begin() + 4);
  swapped.run();
  EXPECT_FALSE(swapped.results() == before);
}

// V8: replays.
TEST(ChainVerify, AThousandReplays) {
  std::mt19937 rng(8);
  Verify v(2, 3, 40, 2);
  std::fill(v.keys.begin(), v.keys.end(), ~uint64_t{0});
  v.arrivals = 3;
  v.clear_scratch();  // what the owner does before the first launch
  for (int round = 0; round < 1000; ++round) {
    v.fill(rng);
    v.poison();
    v.run();
    v.expect_right();
    if (HasFatalFailure()) return;
  }
}

// V10: two scratches, two threads.
TEST(ChainVerify, ConcurrentStreams) {
  std::vector<std::thread> threads;
  for (uint32_t seed = 0; seed < 2; ++seed)
    threads.emplace_back([seed] {
      std::mt19937 rng(seed);
      Verify v(3, 2 + seed * 2, 50, 2);
      for (int round = 0; round < 50; ++round) {
        v.fill(rng);
        v.poison();
        v.run();
        v.expect_right();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// V11: a counter left over from an aborted launch leaves results unwritten; clearing the scratch heals it.
TEST(ChainVerify, AnAbortedLaunchNeedsACleanScratch) {
  Verify v = golden();
  v.arrivals = 30;
  v.run();
  EXPECT_FALSE(v.results() == v.wanted());
  v.clear_scratch();
  v.poison();
  v.run();
  v.expect_right();
}

// V12, V13, V14, V16.
TEST(ChainVerify, OddInputs) {
  Verify v = golden();
  v.candidates[1] = -1;
  v.candidates[5] = int64_t{1} << 32 | 1;  // equal to the target in its low half alone
  v.candidates[9] = 1000000;
  v.run();
  EXPECT_EQ(v.num_correct, (std::vector<int32_t>{0, 0, 0, 2}));
  v.expect_right();

  Verify n = golden();
  n.row(5)[3] = NAN;
  n.row(14)[0] = NAN;
  std::fill_n(n.row(3), 10, NAN);
  n.run();
  EXPECT_EQ(n.num_correct, (std::vector<int32_t>{2, 3, 0, 2}));
  EXPECT_EQ(n.nan, (std::vector<uint32_t>{1, 1, 0, 1}));
  EXPECT_EQ(n.target[3], 0);
  n.expect_right();
  n.set_target(5, 1);
  n.run();
  EXPECT_EQ(n.nan[1], 1u) << "the flag stays until its owner clears it";

  std::mt19937 rng(9);
  Verify padded(5, 3, 30, 2), live(3, 3, 30, 2);
  live.fill(rng);
  for (uint32_t i = 0, from = 0; i < 5; ++i) {
    const bool pad = i == 1 || i == 4;
    for (uint32_t j = 0; j < 3; ++j) {
      padded.candidates[i * 3 + j] = pad ? -1 : live.candidates[from * 3 + j];
      if (pad) std::fill_n(padded.row(i * 3 + j), 30, 0.0f);
      else std::copy_n(live.row(from * 3 + j), 30, padded.row(i * 3 + j));
    }
    from += !pad;
  }
  padded.run();
  live.run();
  padded.expect_right();
  EXPECT_EQ((std::vector<int32_t>{padded.accept_lens[0], padded.accept_lens[2], padded.accept_lens[3]}), live.accept_lens);

  Verify plain(4, 1, 77, 3);
  plain.fill(rng);
  plain.run();
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(plain.predict[i], static_cast<int32_t>(chain_ops::row_argmax(plain.row(i), 77).index));
  EXPECT_EQ(plain.accept_lens, (std::vector<int32_t>{1, 1, 1, 1}));
}

// N4.
TEST(SimulatedAccept, EveryLengthAndBothModes) {
  constexpr uint32_t b = 3, w = 4;
  std::vector<int64_t> candidates;
  std::vector<int32_t> target, predict(b * w), accept_index(b * w), num_correct(b), accept_lens(b);
  for (uint32_t r = 0; r < b * w; ++r) candidates.push_back(100 + r), target.push_back(500 + static_cast<int32_t>(r));
  uint32_t length = 0;
  SimulatedAcceptArgs a{};
  a.n_requests = b;
  a.width = w;
  a.length = &length;
  a.fixed_token = 9;
  a.predict = predict.data();
  a.accept_index = accept_index.data();
  a.num_correct = num_correct.data();
  a.accept_lens = accept_lens.data();
  for (const bool drafts : {false, true})
    for (length = 0; length <= w + 1; ++length) {
      a.candidates = drafts ? candidates.data() : nullptr;
      a.target = drafts ? target.data() : nullptr;
      std::fill(predict.begin(), predict.end(), -7);
      std::fill(accept_index.begin(), accept_index.end(), -7);
      launch("simulated_accept", 1, a, 128);
      const uint32_t l = std::clamp(length, 1u, w);
      for (uint32_t r = 0; r < b * w; ++r) {
        const uint32_t j = r % w;
        EXPECT_EQ(accept_index[r], j < l ? static_cast<int32_t>(r) : -1);
        EXPECT_EQ(predict[r], !drafts ? 9 : j + 1 < l ? static_cast<int32_t>(candidates[r + 1]) : j + 1 == l ? target[r] : 0);
      }
      for (uint32_t i = 0; i < b; ++i) {
        EXPECT_EQ(num_correct[i], static_cast<int32_t>(l) - 1);
        EXPECT_EQ(accept_lens[i], static_cast<int32_t>(l));
      }
    }
}

// N1, N2.
TEST(ChainTree, LayoutsWithAndWithoutEachOutput) {
  std::mt19937 rng(10);
  for (const uint32_t b : {1u, 3u, 128u, 129u, 256u, 257u})
    for (const uint32_t w : {1u, 2u, 4u, 7u})
      for (const uint32_t options : {0u, 15u, 5u, 10u}) {
        const uint64_t rows = uint64_t{b} * w;
        std::vector<int32_t> seq(b), slot_table(b * 64), slots(rows, -77), prefix(b, -77), extend(b, -77), post(b, -77), starts(b, -77);
        std::vector<int64_t> bonus(b), drafts(b * 9), tokens(rows, -77), positions(rows, -77), retrieve(rows, -77), next(rows, -77), sibling(rows, -77), sections(3 * rows, -77), extend_positions(rows, -77);
        std::vector<uint8_t> mask(rows * w + 10, 0x77);
        const int32_t lengths[] = {0, 1, 8192, 131000, -1, 50};
        for (uint32_t i = 0; i < b; ++i) seq[i] = lengths[rng() % 6], bonus[i] = rng();
        for (int64_t& d : drafts) d = rng();
        for (int32_t& s : slot_table) s = static_cast<int32_t>(rng());
        ChainTreeArgs a{};
        a.n_requests = b, a.width = w, a.seq = seq.data(), a.bonus = bonus.data(), a.drafts = drafts.data(), a.draft_stride = 9;
        a.tokens = tokens.data(), a.positions = positions.data(), a.retrieve_index = retrieve.data(), a.next_token = next.data(), a.next_sibling = sibling.data();
        if (options & 1) a.mask = mask.data();
        if (options & 2) a.slot_table = slot_table.data(), a.slot_stride = 64, a.slots = slots.data();
        if (options & 4) a.sections = sections.data();
        if (options & 8) a.prefix_lens = prefix.data(), a.extend_lens = extend.data(), a.post_lens = post.data(), a.extend_positions = extend_positions.data(), a.start_locs = starts.data();
        launch("build_chain_tree", static_cast<uint32_t>((rows + 127) / 128), a, 128);
        for (uint32_t r = 0; r < rows; ++r) {
          const uint32_t i = r / w, j = r % w;
          const int64_t at = int64_t{seq[i]} + j;
          ASSERT_EQ(tokens[r], j == 0 ? bonus[i] : drafts[i * 9 + j - 1]);
          ASSERT_EQ(positions[r], at);
          ASSERT_EQ(retrieve[r], r);
          ASSERT_EQ(next[r], j + 1 == w ? -1 : static_cast<int64_t>(j + 1));
          ASSERT_EQ(sibling[r], -1);
          for (uint32_t c = 0; c < w; ++c) ASSERT_EQ(mask[uint64_t{r} * w + c], options & 1 ? c <= j : 0x77);
          ASSERT_EQ(slots[r], !(options & 2) ? -77 : at >= 0 && at < 64 ? slot_table[i * 64 + at] : -1);
          for (int s = 0; s < 3; ++s) ASSERT_EQ(sections[s * rows + r], options & 4 ? at : -77);
          ASSERT_EQ(extend_positions[r], options & 8 ? at : -77);
        }
        for (uint32_t i = 0; i < b; ++i) {
          ASSERT_EQ(prefix[i], options & 8 ? std::max(seq[i], 0) : -77);
          ASSERT_EQ(extend[i], options & 8 ? static_cast<int32_t>(w) : -77);
          ASSERT_EQ(post[i], options & 8 ? seq[i] + static_cast<int32_t>(w) : -77);
          ASSERT_EQ(starts[i], options & 8 ? static_cast<int32_t>(i * w) : -77);
        }
        for (size_t i = rows * w; i < mask.size(); ++i) ASSERT_EQ(mask[i], 0x77);
      }
}

// N3.
TEST(ChainCommit, TheRelayIsKeyedBySlot) {
  std::mt19937 rng(11);
  for (const uint32_t b : {1u, 4u, 130u, 300u}) {
    Verify v(b, 4, 20, 1);
    v.fill(rng);
    v.run();
    std::vector<int32_t> seq(b), slot(b), new_lens(b, -77), relay(b + 20, -77), want = relay;
    std::vector<int64_t> bonus(b, -77), select(b, -77);
    for (uint32_t i = 0; i < b; ++i) seq[i] = rng() % 1000, slot[i] = static_cast<int32_t>(i + 10);
    std::shuffle(slot.begin(), slot.end(), rng);
    if (b > 3) slot[2] = -1, slot[3] = static_cast<int32_t>(b) + 500;
    ChainCommitArgs a{};
    a.n_requests = b, a.width = 4, a.predict = v.predict.data(), a.accept_index = v.accept_index.data(), a.accept_lens = v.accept_lens.data();
    a.seq = seq.data(), a.slot = slot.data(), a.relay_size = b + 20;
    a.bonus = bonus.data(), a.new_lens = new_lens.data(), a.select = select.data(), a.relay_lens = relay.data();
    launch("chain_commit", (b + 127) / 128, a, 128);
    for (uint32_t i = 0; i < b; ++i) {
      const uint32_t c = static_cast<uint32_t>(v.num_correct[i]);
      EXPECT_EQ(bonus[i], v.predict[v.accept_index[i * 4 + c]]);
      EXPECT_EQ(new_lens[i], seq[i] + static_cast<int32_t>(c) + 1);
      EXPECT_EQ(select[i], i * 4 + c);
      if (slot[i] >= 0 && slot[i] < static_cast<int32_t>(b + 20)) want[slot[i]] = new_lens[i];
    }
    EXPECT_EQ(relay, want);
  }
}

}  // namespace turbo::kernels
