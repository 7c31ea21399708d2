// The chain's table: what one cycle costs, empty batches, and what a caller must do after a failure. The tree's device table
// in a stream.
#include <turbo/abi/draft/verify_device.h>
#include <turbo/kernel/chain_ops.hpp>
#include <turbo/kernel/tree_ops.hpp>

#include <gtest/gtest.h>

#include <random>

#include "chain_rig.h"

namespace turbo {
namespace {

struct Rig : ChainRig {
  const turbo_tree_ops_device* tree = sampler.component.interface<turbo_tree_ops_device>(TURBO_TREE_OPS_DEVICE_DRAFT);
};

}  // namespace

// N10: three draft steps, one verification, one commit, one tree for the next cycle: six launches, no copy, no fill, no wait.
TEST(ChainTable, LaunchesOfOneCycle) {
  Rig rig;
  constexpr uint32_t b = 2, w = 4, vocab = 300;
  std::mt19937 rng(1);
  std::vector<float> logits(b * w * vocab);
  for (float& x : logits) x = static_cast<float>(rng() % 100000);
  const float* at = rig.device.upload(logits);
  auto* scratch = rig.make<char>(rig.chain->scratch_bytes(rig.self, b * w));
  ASSERT_EQ(rig.chain->reset(rig.self, rig.stream, scratch, b * w, &rig.error), TURBO_OK);
  auto *tokens = rig.make<int64_t>(b * w), *step_tokens = rig.make<int64_t>(b), *positions = rig.make<int64_t>(b * w), *step_positions = rig.make<int64_t>(b, 40);
  auto *first = rig.make<int64_t>(b, 9), *bonus = rig.make<int64_t>(b), *select = rig.make<int64_t>(b), *drafts = rig.make<int64_t>(b * w, -1);
  auto *retrieve = rig.make<int64_t>(b * w), *next = rig.make<int64_t>(b * w), *sibling = rig.make<int64_t>(b * w);
  auto *predict = rig.make<int32_t>(b * w, -7), *index = rig.make<int32_t>(b * w, -7), *correct = rig.make<int32_t>(b, -7), *lens = rig.make<int32_t>(b, -7);
  auto *seq = rig.make<int32_t>(b, 40), *slot = rig.device.upload(std::vector<int32_t>{1, 0}), *new_lens = rig.make<int32_t>(b), *relay = rig.make<int32_t>(b);
  rig.device.counts = {};
  for (uint32_t step = 0; step < w - 1; ++step) {
    // The drafter is the target here: its rows lie a request apart, and every draft is right.
    turbo_draft_step draft{sizeof draft, b, at + step * vocab, w * vocab, vocab, step + 1, scratch, step_tokens, nullptr, drafts, w, step == 0 ? first : nullptr, step_positions, nullptr, nullptr};
    ASSERT_EQ(rig.chain->draft_step(rig.self, rig.stream, &draft, &rig.error), TURBO_OK);
  }
  turbo_chain_verify verify{sizeof verify, b, w, vocab, at, vocab, scratch, drafts, predict, index, correct, lens, nullptr, nullptr};
  ASSERT_EQ(rig.chain->verify(rig.self, rig.stream, &verify, &rig.error), TURBO_OK);
  turbo_chain_commit commit{sizeof commit, b, w, b, predict, index, lens, seq, slot, bonus, new_lens, select, relay};
  ASSERT_EQ(rig.chain->commit(rig.self, rig.stream, &commit, &rig.error), TURBO_OK);
  turbo_chain_tree tree{};
  tree.struct_size = sizeof tree;
  tree.n_requests = b, tree.width = w, tree.seq = new_lens, tree.bonus = bonus, tree.drafts = drafts + 1, tree.draft_stride = w;
  tree.tokens = tokens, tree.positions = positions, tree.retrieve_index = retrieve, tree.next_token = next, tree.next_sibling = sibling;
  ASSERT_EQ(rig.chain->build_tree(rig.self, rig.stream, &tree, &rig.error), TURBO_OK);
  EXPECT_EQ(rig.device.counts.launches, w + 2);
  EXPECT_EQ(rig.device.counts.copies + rig.device.counts.fills + rig.device.counts.syncs + rig.device.counts.allocations, 0u);
  EXPECT_EQ(rig.device.download(correct, b), (std::vector<int32_t>{3, 3}));
  EXPECT_EQ(rig.device.download(relay, b), (std::vector<int32_t>{44, 44}));
  EXPECT_EQ(rig.device.download(step_positions, b), (std::vector<int64_t>{43, 43}));
  const std::vector<int64_t> row = rig.device.download(drafts, b * w), built = rig.device.download(tokens, b * w), where = rig.device.download(positions, b * w);
  for (uint32_t i = 0; i < b; ++i) {
    EXPECT_EQ(row[i * w], 9);
    for (uint32_t j = 0; j < w; ++j) {
      const int64_t token = chain_ops::row_argmax(logits.data() + (i * w + j) * vocab, vocab).index;
      if (j + 1 < w) { EXPECT_EQ(row[i * w + j + 1], token); }
      if (j + 1 == w) { EXPECT_EQ(built[i * w], token) << "the bonus is the next root"; }
      EXPECT_EQ(where[i * w + j], 44 + j);
    }
  }
}

// G14.
TEST(ChainTable, AnEmptyBatchLaunchesNothing) {
  Rig rig;
  rig.device.counts = {};
  turbo_draft_step draft{};
  draft.struct_size = sizeof draft;
  turbo_chain_verify verify{};
  verify.struct_size = sizeof verify;
  turbo_chain_tree tree{};
  tree.struct_size = sizeof tree;
  turbo_chain_commit commit{};
  commit.struct_size = sizeof commit;
  EXPECT_EQ(rig.chain->draft_step(rig.self, rig.stream, &draft, nullptr), TURBO_OK);
  EXPECT_EQ(rig.chain->verify(rig.self, rig.stream, &verify, nullptr), TURBO_OK);
  EXPECT_EQ(rig.chain->build_tree(rig.self, rig.stream, &tree, nullptr), TURBO_OK);
  EXPECT_EQ(rig.chain->commit(rig.self, rig.stream, &commit, nullptr), TURBO_OK);
  EXPECT_EQ(rig.device.counts.launches, 0u);
}

TEST(ChainTable, BrokenCallsAreRefused) {
  Rig rig;
  turbo_chain_verify verify{};
  verify.n_requests = verify.width = 1;
  EXPECT_EQ(rig.chain->verify(rig.self, rig.stream, &verify, &rig.error), TURBO_INVALID_ARGUMENT) << "no size";
  verify.struct_size = sizeof verify;
  EXPECT_EQ(rig.chain->verify(rig.self, rig.stream, &verify, &rig.error), TURBO_INVALID_ARGUMENT) << "no vocabulary";
  EXPECT_EQ(rig.chain->verify(rig.self, rig.stream, nullptr, &rig.error), TURBO_INVALID_ARGUMENT);
  const auto* client = rig.sampler.component.interface<turbo_device_client>(TURBO_DEVICE_CLIENT_DRAFT);
  client->detach(rig.self);
  EXPECT_EQ(rig.chain->reset(rig.self, rig.stream, &verify, 1, &rig.error), TURBO_INVALID_ARGUMENT);
  ASSERT_EQ(client->attach(rig.self, rig.device.api(), &rig.error), TURBO_OK);
}

// A malformed request in device memory is told by itself; the others go on.
TEST(TreeTable, MalformedRequestsDoNotHurtTheOthers) {
  Rig rig;
  constexpr uint32_t b = 3, k = 3;
  const auto* candidates = rig.device.upload(std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0, 1, 2});
  const auto* retrieve = rig.device.upload(std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8});
  const auto* next = rig.device.upload(std::vector<int64_t>{1, -1, -1, 1, -1, -1, 99, -1, -1});
  const auto* sibling = rig.device.upload(std::vector<int64_t>{-1, 2, -1, -1, 1, -1, -1, -1, -1});  // request 1 goes round
  const auto* target = rig.device.upload(std::vector<int64_t>{2, 5, 7, 9, 9, 9, 9, 9, 9});
  auto *predicts = rig.make<int32_t>(b * k, -1), *index = rig.make<int32_t>(b * k, -1), *accepted = rig.make<int32_t>(b, -1);
  auto* malformed = rig.make<uint32_t>(b, 7u);
  turbo_tree_walk walk{sizeof walk, b, k, k, candidates, retrieve, next, sibling, predicts, index, accepted};
  ASSERT_EQ(rig.tree->verify_greedy(rig.self, rig.stream, &walk, target, malformed, &rig.error), TURBO_OK);
  EXPECT_EQ(rig.device.download(malformed, b), (std::vector<uint32_t>{0, 1, 1}));
  EXPECT_EQ(rig.device.download(accepted, b)[0], 1);
  EXPECT_EQ(rig.device.download(predicts, b * k)[0], 2);
  EXPECT_EQ(rig.device.download(predicts, b * k)[2], 7);

  // The mask's buffer is too small for the last request alone.
  const auto* selected = rig.device.upload(std::vector<int64_t>{0, 1, 1, 0, 0, 1});
  const auto* prefix = rig.device.upload(std::vector<int64_t>{2, 3, 4});
  auto* mask = rig.make<uint8_t>(100, 1);
  auto *positions = rig.make<int64_t>(b * k, -7), *rows = rig.make<int64_t>(b * k, -7), *child = rig.make<int64_t>(b * k, -7), *twin = rig.make<int64_t>(b * k, -7);
  turbo_tree_build build{sizeof build, b, k, 2, 1, TURBO_TREE_MASK_FULL, nullptr, selected, prefix, mask, 5 * 3 + 6 * 3 + 7 * 3 - 1, positions, rows, child, twin, nullptr};
  ASSERT_EQ(rig.tree->build(rig.self, rig.stream, &build, malformed, &rig.error), TURBO_OK);
  EXPECT_EQ(rig.device.download(malformed, b), (std::vector<uint32_t>{0, 1, 1}));
  const std::vector<uint8_t> made = rig.device.download(mask, 100);
  EXPECT_EQ(std::vector<uint8_t>(made.begin(), made.begin() + 15), (std::vector<uint8_t>{1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1}));
  for (size_t i = 15; i < 100; ++i) EXPECT_EQ(made[i], 1) << i;
  EXPECT_EQ(rig.device.download(child, 3), (std::vector<int64_t>{1, -1, -1}));
}

// T4, at a vocabulary of several tiles: coins away from edges give the host's tokens.
TEST(TreeTable, CoinWalksOfWideVocabulariesEqualTheHosts) {
  Rig rig;
  std::mt19937 rng(3);
  constexpr uint32_t vocab = 3001, k = 2;
  const turbo_tree_ops* ops = rig.sampler.component.interface<turbo_tree_ops>(TURBO_TREE_OPS_DRAFT);
  for (int round = 0; round < 12; ++round) {
    std::vector<float> p(k * vocab), scratch(k * vocab), host_scratch(k * vocab);
    double sum = 0;
    for (uint32_t v = 0; v < vocab; ++v) sum += p[v] = round % 3 == 2 && v > 900 ? 0.f : static_cast<float>(rng() % 1000);
    for (float& x : p) x = static_cast<float>(x / sum);
    std::copy_n(p.begin(), vocab, p.begin() + vocab);
    const int64_t candidates[] = {0, 5}, retrieve[] = {0, 1}, next[] = {1, -1}, sibling[] = {-1, -1};
    const float coins[] = {0.9f, 0.5f}, last[] = {round == 0 ? 0.99999994f : static_cast<float>(rng() % 1000) / 1001};
    int32_t a[2] = {-1, -1}, index[2] = {-1, -1}, n[1], host_a[2] = {-1, -1}, host_index[2] = {-1, -1}, host_n[1];
    const turbo_tree_walk walk{sizeof walk, 1, k, 2, candidates, retrieve, next, sibling, a, index, n}, host_walk{sizeof walk, 1, k, 2, candidates, retrieve, next, sibling, host_a, host_index, host_n};
    const turbo_tree_coins c{sizeof c, vocab, coins, last, p.data(), scratch.data(), 1, 1, nullptr}, host_c{sizeof c, vocab, coins, last, p.data(), host_scratch.data(), 1, 1, nullptr};
    ASSERT_EQ(ops->verify_coins(rig.self, &walk, &c, &rig.error), TURBO_OK) << rig.error.message;
    tree_ops::verify_coins(host_walk, host_c);
    EXPECT_EQ(a[0], host_a[0]) << round;
    EXPECT_EQ(n[0], host_n[0]);
    EXPECT_EQ(scratch, host_scratch);
  }
}

}  // namespace turbo
