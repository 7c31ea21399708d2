// Readers beside the writer: no lock, no wait, no invented n-gram. Meant for ThreadSanitizer as well.
#include <atomic>
#include <thread>

#include "support.h"

using namespace turbo;
using namespace turbo::draft;

namespace {

// Every text counts up by a step of its own, so a draft can be checked by itself: t, t + d, t + 2d, ...
Tokens steps(uint32_t n) {
  Tokens text;
  const auto step = static_cast<int32_t>(1 + n % 7);
  for (int32_t i = 0; i < 24; ++i) text.push_back(static_cast<int32_t>(n % 50) * 1000 + i * step);
  return text;
}

void check_draft(const Tokens& context, const DraftNodes& draft, std::atomic<uint64_t>& invented) {
  for (uint32_t i = 0; i < draft.size(); ++i) {
    const int32_t parent = draft.parents[i];
    const int32_t before = parent < 0 ? context.back() : draft.tokens[static_cast<size_t>(parent)];
    const int32_t step = draft.tokens[i] - before;
    if (parent >= static_cast<int32_t>(i) || step < 1 || step > 7) ++invented;
  }
}

void readers_beside_a_writer(NgramMatch mode, uint64_t capacity, uint32_t n_texts, bool resets) {
  NgramCorpus corpus({6, 1, 4, mode, capacity});
  std::atomic<bool> done{false};
  std::atomic<uint64_t> invented{0}, matches{0}, refused{0}, found{0};
  std::vector<std::thread> readers;
  for (uint32_t r = 0; r < 3; ++r)
    readers.emplace_back([&, r] {
      std::mt19937 random(r);
      DraftNodes draft;
      while (!done || matches < 100) {
        Tokens context = steps(random() % 1000);
        context.resize(1 + random() % 20);
        ++matches;
        if (!corpus.match(context, 11, {}, draft)) {
          ++refused;
          EXPECT_EQ(draft.size(), 0u);
        }
        found += draft.size() > 0;
        check_draft(context, draft, invented);
      }
    });
  for (uint32_t n = 0; n < n_texts; ++n) {
    corpus.insert(steps(n * 7919));
    if (resets && n % 50 == 49) corpus.reset();
    if (n % 16 == 0) std::this_thread::yield();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(invented, 0u);
  EXPECT_GT(found, 0u);
  EXPECT_LT(refused, matches / 10 + 1) << "readers come through while the writer works";
  NgramProbe::check(corpus);
}

}  // namespace

TEST(NgramConcurrency, ReadersSeeOnlyTrueContinuationsWhileItGrows) {
  for (const NgramMatch mode : {NgramMatch::bfs, NgramMatch::prob})
    readers_beside_a_writer(mode, 1'000'000, 800, false);
}
TEST(NgramConcurrency, AndWhileItForgets) {
  for (const NgramMatch mode : {NgramMatch::bfs, NgramMatch::prob}) readers_beside_a_writer(mode, 700, 1500, false);
}
TEST(NgramConcurrency, AndWhileItIsReset) {
  for (const NgramMatch mode : {NgramMatch::bfs, NgramMatch::prob}) readers_beside_a_writer(mode, 5000, 800, true);
}
