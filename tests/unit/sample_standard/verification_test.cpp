// The law of what verification emits, enumerated: at each node the token is the one whose interval holds a uniform number,
// so the probability of a text is a product of lengths of intervals. Whatever the drafts, that is plain decoding's law.
#include <gtest/gtest.h>
#include <turbo/kernel/random.h>

#include <cmath>
#include <map>
#include <random>

#include "distribution.h"
#include "spec/draft_tree.h"

using namespace turbo;
using namespace turbo::sample_standard;

namespace {

using Tokens = std::vector<int32_t>;
using Law = std::map<Tokens, double>;
constexpr size_t kLength = 4;  // tokens that are enumerated

// A model, a grammar and the settings of a request: fixed numbers for every text.
struct World {
  uint32_t seed, vocabulary;
  int mix;
  Tokens prompt;

  uint64_t hash(const Tokens& text) const {
    uint64_t h = seed;
    for (const int32_t token : text) h = turbo_mix64(h * 31 + static_cast<uint64_t>(token) + 1);
    return h;
  }
};

// Length of the interval of each token that can follow. `output` was generated, `path` are draft tokens above the row.
std::vector<Distribution::Entry> intervals(const World& world, const Tokens& output, const Tokens& path) {
  Tokens text = output;
  text.insert(text.end(), path.begin(), path.end());
  const uint64_t h = world.hash(text);
  std::vector<float> logits;
  for (uint32_t t = 0; t < world.vocabulary; ++t) logits.push_back(static_cast<float>((turbo_uniform(h, t) - 0.5) * 5));
  const uint32_t mask = static_cast<uint32_t>(turbo_mix64(h + 9)) | 1u << h % world.vocabulary;
  SampleRow row;
  row.logits = logits;
  row.prompt = world.prompt;
  row.output = output;
  row.path = path;
  row.temperature = 0.8f;
  if (world.mix & 1) row.repetition_penalty = 1.4f, row.presence_penalty = 0.3f, row.frequency_penalty = 0.5f;
  if (world.mix & 2) row.min_p = 0.15f;
  if (world.mix & 4) row.mask = std::span(&mask, 1);
  if (world.mix & 8) row.top_k = 3;
  if (world.mix & 16) row.top_p = 0.85f;
  if (world.mix & 32) row.typical_p = 0.9f;
  Distribution d;
  EXPECT_EQ(d.prepare(row), TURBO_OK);
  const std::vector<Distribution::Entry> table = d.table();
  double from = 0;
  for (const auto& [id, p] : table) {  // the table is the draw, to a billionth at both edges
    if (p > 4e-9) {
      EXPECT_EQ(d.draw(from + 1e-9), id);
      EXPECT_EQ(d.draw(from + p - 1e-9), id);
    }
    from += p;
  }
  EXPECT_NEAR(from, 1, 1e-12);
  return table;
}

void plain(const World& world, const Tokens& output, double probability, Law& law) {
  if (output.size() == kLength) {
    law[output] += probability;
    return;
  }
  for (const auto& [id, p] : intervals(world, output, {})) {
    Tokens next = output;
    next.push_back(id);
    plain(world, next, probability * p, law);
  }
}

// Any legal tree that depends on the text alone: chains, bushes, tokens that cannot come, none at all.
spec::DraftTree draft(const World& world, const Tokens& output, uint32_t kind) {
  spec::DraftTree tree;
  std::mt19937 rng(static_cast<uint32_t>(world.hash(output)) + kind);
  for (uint32_t n = rng() % 9; n > 0; --n) {
    const auto parent = kind % 3 == 0 ? static_cast<int32_t>(tree.size()) - 1 : static_cast<int32_t>(rng() % (tree.size() + 1)) - 1;
    const auto token = static_cast<int32_t>(rng() % world.vocabulary);
    bool there = false;
    for (uint32_t i = 0; i < tree.size(); ++i) there |= tree.parents[i] == parent && tree.tokens[i] == token;
    if (there) continue;
    tree.tokens.push_back(token);
    tree.parents.push_back(parent);
  }
  EXPECT_EQ(spec::find_fault(tree.tokens, tree.parents, 8, world.vocabulary), nullptr);
  return tree;
}

struct Round {
  const World& world;
  uint32_t kind;
  Tokens output;
  spec::DraftTree tree;
};
void verified(const World& world, uint32_t kind, const Tokens& output, double probability, Law& law);

// All outcomes of the row at `node` (-1 the root); rows off the walk hold what would mislead it. Ends of walks go through
// the engine's own accept().
void walk(const Round& round, int32_t node, Tokens path, std::vector<int32_t> drawn, double probability, Law& law) {
  for (const auto& [id, p] : intervals(round.world, round.output, path)) {
    drawn[static_cast<size_t>(node + 1)] = id;
    int32_t child = -1;
    for (uint32_t i = 0; i < round.tree.size(); ++i)
      if (round.tree.parents[i] == node && round.tree.tokens[i] == id) child = static_cast<int32_t>(i);
    if (child >= 0) {
      Tokens deeper = path;
      deeper.push_back(id);
      walk(round, child, deeper, drawn, probability * p, law);
      continue;
    }
    Tokens emitted = path;
    emitted.push_back(id);
    const spec::Acceptance acceptance = spec::accept(round.tree, drawn);
    ASSERT_EQ(acceptance.emitted, emitted);
    ASSERT_EQ(acceptance.accepted.size(), path.size());
    Tokens output = round.output;
    output.insert(output.end(), emitted.begin(), emitted.end());
    verified(round.world, round.kind, output, probability * p, law);
  }
}

void verified(const World& world, uint32_t kind, const Tokens& output, double probability, Law& law) {
  if (output.size() >= kLength) {
    law[Tokens(output.begin(), output.begin() + kLength)] += probability;
    return;
  }
  Round round{world, kind, output, draft(world, output, kind)};
  std::vector<int32_t> drawn(round.tree.size() + 1, 0);
  for (uint32_t i = 0; i < round.tree.size(); ++i)  // as if every row drew one of its children
    drawn[static_cast<size_t>(round.tree.parents[i] + 1)] = round.tree.tokens[i];
  walk(round, -1, {}, drawn, probability, law);
}

}  // namespace

TEST(Verification, EmitsPlainDecodingsLaw) {
  size_t laws = 0, texts = 0;
  for (uint32_t seed = 1; seed <= 8; ++seed)
    for (int mix = 0; mix < 64; ++mix) {
      const World world{seed, 4 + seed % 2, mix, {1, 0, 1}};
      Law expected;
      plain(world, {}, 1, expected);
      for (uint32_t kind = 0; kind < 3; ++kind) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << " mix " << mix << " drafts " << kind);
        Law law;
        verified(world, kind, {}, 1, law);
        ASSERT_EQ(law.size(), expected.size());
        double sum = 0;
        for (const auto& [text, p] : expected) {
          ASSERT_NEAR(law.at(text), p, 1e-9);
          sum += p;
          ++texts;
        }
        ASSERT_NEAR(sum, 1, 1e-9);
        ++laws;
        if (HasFailure()) return;
      }
    }
  EXPECT_EQ(laws, 8u * 64 * 3);
  EXPECT_GT(texts, 10000u);
}

// Drafts that follow the text alone may put siblings in any order.
TEST(Verification, TheOrderOfSiblingsChangesNothing) {
  const spec::DraftTree one{{3, 1, 2, 0}, {-1, -1, 0, 1}}, other{{1, 3, 0, 2}, {-1, -1, 0, 1}};
  for (int32_t root = 0; root < 4; ++root)
    for (int32_t below_3 = 0; below_3 < 4; ++below_3)
      for (int32_t below_1 = 0; below_1 < 4; ++below_1) {
        const Tokens drawn{root, below_3, below_1, 7, 8}, swapped{root, below_1, below_3, 8, 7};
        EXPECT_EQ(spec::accept(one, drawn).emitted, spec::accept(other, swapped).emitted);
      }
}
