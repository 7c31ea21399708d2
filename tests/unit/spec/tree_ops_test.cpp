// Tree ops: goldens, brute force, the distribution of the coin walk, malformed trees. Compiled into the test program of
// each tier, whose tree_tier.h says who computes and how much of it is bearable there.
#include <gtest/gtest.h>
#include <turbo/kernel/tree_ops.hpp>
#include <turbo/kernel/tree_ops_check.hpp>

#include <tree_tier.h>  // of the folder that builds this program

#include <map>
#include <random>

namespace turbo::tree_ops {
namespace {

using Ids = std::vector<int64_t>;

/// Arrays of a walk over B requests of K slots.
struct WalkArrays {
  uint32_t b, k, s;
  Ids candidates, retrieve, next_token, next_sibling;
  std::vector<int32_t> predicts, accept_index, n_accepted;

  WalkArrays(uint32_t b, uint32_t k, uint32_t s) : b(b), k(k), s(s), candidates(b * k), retrieve(b * k), next_token(b * k, -1), next_sibling(b * k, -1) {
    for (uint32_t i = 0; i < b * k; ++i) retrieve[i] = i;
    clear();
  }
  void clear() {
    predicts.assign(b * k, -1);
    accept_index.assign(b * s, -1);
    n_accepted.assign(b, -1);
  }
  turbo_tree_walk raw() {
    return {sizeof(turbo_tree_walk), b, k, s, candidates.data(), retrieve.data(), next_token.data(), next_sibling.data(), predicts.data(), accept_index.data(), n_accepted.data()};
  }
  std::vector<int32_t> emitted(uint32_t request) const {
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i <= n_accepted[request]; ++i) tokens.push_back(predicts[accept_index[request * s + i]]);
    return tokens;
  }
};

/// The tree of the goldens of both walks.
WalkArrays golden_tree() {
  WalkArrays walk(2, 6, 4);
  walk.candidates = {0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 12};
  walk.next_token = {1, 2, -1, 4, 5, -1, 4, 2, 3, -1, 5, -1};
  walk.next_sibling = {-1, 3, -1, -1, -1, -1, -1, -1, -1, -1, 1, -1};
  return walk;
}
constexpr uint32_t kGoldenVocabulary = 20;
Ids golden_target() {
  Ids target(12, 18);
  target[0] = 3, target[3] = 4, target[4] = 5, target[6] = 11, target[10] = 12;
  return target;
}

struct CoinArrays {
  uint32_t v;
  std::vector<float> coins, final_coin, target, draft;
  float single = 1, acc = 1;
  std::vector<uint32_t> failed;

  CoinArrays(uint32_t b, uint32_t k, uint32_t v) : v(v), coins(b * k), final_coin(b), target(b * k * v), draft(b * k * v), failed(b) {}
  turbo_tree_coins raw() {
    std::fill(draft.begin(), draft.end(), 0.0f);
    return {sizeof(turbo_tree_coins), v, coins.data(), final_coin.data(), target.data(), draft.data(), single, acc, failed.data()};
  }
};

/// Links of a tree from parents by slot (slot 0 the root), in one request's part of the arrays.
void link_request(WalkArrays& walk, uint32_t request, const std::vector<int64_t>& parents) {
  detail::link_children(parents.data(), walk.k, walk.next_token.data() + request * walk.k, walk.next_sibling.data() + request * walk.k);
}

/// A random tree whose siblings differ; tokens below `v`.
std::vector<int64_t> random_tree(std::mt19937& rng, WalkArrays& walk, uint32_t request, uint32_t v) {
  std::vector<int64_t> parents(walk.k, -1);
  int64_t* token = walk.candidates.data() + request * walk.k;
  token[0] = rng() % v;
  for (uint32_t j = 1; j < walk.k; ++j) {
    for (int tries = 0; tries < 100; ++tries) {
      parents[j] = rng() % j;
      token[j] = rng() % v;
      bool twin = parents[parents[j]] < 0 && parents[j] > 0;  // below a dead slot
      for (uint32_t i = 1; i < j; ++i) twin = twin || (parents[i] == parents[j] && token[i] == token[j]);
      if (!twin) break;
      parents[j] = -1;
    }
  }
  link_request(walk, request, parents);
  return parents;
}

}  // namespace

TEST(TreeOps, LinksOfAMask) {
  const std::vector<uint8_t> mask = {1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1};
  const Ids prefix = {12};
  Ids positions(4), retrieve(4), next_token(4), next_sibling(4);
  TreeTier::get().link({sizeof(turbo_tree_links), 1, 4, 0, mask.data(), prefix.data(), positions.data(), retrieve.data(), next_token.data(), next_sibling.data()});
  EXPECT_EQ(retrieve, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(next_token, (Ids{1, -1, 3, -1}));
  EXPECT_EQ(next_sibling, (Ids{-1, 2, -1, -1}));
  EXPECT_EQ(positions, (Ids{12, 13, 13, 14}));
}

TEST(TreeOps, DeadSlotsAreNeverLinked) {
  const std::vector<uint8_t> rows = {1, 0, 0, /**/ 0, 1, 0, /**/ 1, 0, 1};  // root, dead, child
  const Ids prefix = {5};
  Ids positions(3), retrieve(3), next_token(3), next_sibling(3);
  TreeTier::get().link({sizeof(turbo_tree_links), 1, 3, 0, rows.data(), prefix.data(), positions.data(), retrieve.data(), next_token.data(), next_sibling.data()});
  EXPECT_EQ(next_token, (Ids{2, -1, -1}));
  EXPECT_EQ(next_sibling, (Ids{-1, -1, -1}));
  EXPECT_EQ(positions, (Ids{5, 5, 6}));
}

TEST(TreeOps, GreedyWalkOfTheGolden) {
  WalkArrays walk = golden_tree();
  TreeTier::get().verify_greedy(walk.raw(), golden_target().data());
  EXPECT_EQ(walk.predicts, (std::vector<int32_t>{3, -1, -1, 4, 5, 18, 11, -1, -1, -1, 12, 18}));
  EXPECT_EQ(walk.accept_index, (std::vector<int32_t>{0, 3, 4, 5, 6, 10, 11, -1}));
  EXPECT_EQ(walk.n_accepted, (std::vector<int32_t>{3, 2}));
}

TEST(TreeOps, CoinWalkOfTheGolden) {
  WalkArrays walk = golden_tree();
  CoinArrays coins(2, 6, kGoldenVocabulary);
  const Ids target = golden_target();
  for (uint32_t row = 0; row < 12; ++row) {  // softmax of logits 10 and 1 at temperature 0.01
    double sum = 0;
    std::vector<double> weight(kGoldenVocabulary);
    for (uint32_t v = 0; v < kGoldenVocabulary; ++v) sum += weight[v] = std::exp(((v == target[row] ? 10.0 : 1.0) - 10.0) / 0.01);
    for (uint32_t v = 0; v < kGoldenVocabulary; ++v) coins.target[row * kGoldenVocabulary + v] = static_cast<float>(weight[v] / sum);
  }
  std::mt19937 rng(5);
  for (int round = 0; round < TreeTier::rounds(50); ++round) {
    for (float& coin : coins.coins) coin = static_cast<float>(rng() % 1000) / 1000;
    for (float& coin : coins.final_coin) coin = static_cast<float>(rng() % 1000) / 1000;
    walk.clear();
    TreeTier::get().verify_coins(walk.raw(), coins.raw());
    EXPECT_EQ(walk.predicts, (std::vector<int32_t>{3, -1, -1, 4, 5, 18, 11, -1, -1, -1, 12, 18}));
    EXPECT_EQ(walk.accept_index, (std::vector<int32_t>{0, 3, 4, 5, 6, 10, 11, -1}));
    EXPECT_EQ(walk.n_accepted, (std::vector<int32_t>{3, 2}));
    EXPECT_EQ(coins.failed, (std::vector<uint32_t>{0, 0}));
  }
  coins.single = coins.acc = 0;  // every first child is taken
  walk.clear();
  TreeTier::get().verify_coins(walk.raw(), coins.raw());
  EXPECT_EQ(walk.predicts, (std::vector<int32_t>{1, 2, 18, -1, -1, -1, 11, -1, -1, -1, 12, 18}));
  EXPECT_EQ(walk.accept_index, (std::vector<int32_t>{0, 1, 2, -1, 6, 10, 11, -1}));
  EXPECT_EQ(walk.n_accepted, (std::vector<int32_t>{2, 2}));
}

namespace {

using Distribution = std::map<std::vector<int32_t>, double>;

// What sampling without drafts emits along the tree: the target's tokens until one has no node.
void plain_distribution(const WalkArrays& walk, const CoinArrays& coins, uint32_t slot, uint32_t depth, std::vector<int32_t>& prefix, double weight, Distribution& out) {
  for (uint32_t v = 0; v < coins.v; ++v) {
    const double p = coins.target[slot * coins.v + v];
    if (p == 0) continue;
    int64_t child = depth + 1 < walk.s ? walk.next_token[slot] : -1;
    while (child >= 0 && walk.candidates[child] != v) child = walk.next_sibling[child];
    prefix.push_back(static_cast<int32_t>(v));
    if (child >= 0) plain_distribution(walk, coins, static_cast<uint32_t>(child), depth + 1, prefix, weight * p, out);
    else out[prefix] += weight * p;
    prefix.pop_back();
  }
}

// Integrates over coins: between two neighbouring sums of children's probabilities the walk is the same.
void coin_distribution(WalkArrays& walk, CoinArrays& coins, uint32_t slot, uint32_t depth, double weight, Distribution& out) {
  std::vector<double> edges = {0};
  std::vector<int64_t> children;
  if (depth + 1 < walk.s)
    for (int64_t child = walk.next_token[slot]; child >= 0; child = walk.next_sibling[child]) {
      children.push_back(child);
      edges.push_back(edges.back() + coins.target[slot * coins.v + walk.candidates[child]]);
    }
  for (size_t i = 0; i < children.size(); ++i) {
    const double part = edges[i + 1] - edges[i];
    if (part == 0) continue;
    coins.coins[slot] = static_cast<float>((edges[i] + edges[i + 1]) / 2);
    coin_distribution(walk, coins, static_cast<uint32_t>(children[i]), depth + 1, weight * part, out);
  }
  if (edges.back() >= 1) return;
  coins.coins[slot] = static_cast<float>((edges.back() + 1) / 2);
  // The final coin: the sums of what is left.
  std::vector<double> left(coins.v), sums = {0};
  for (uint32_t v = 0; v < coins.v; ++v) left[v] = coins.target[slot * coins.v + v];
  for (const int64_t child : children) left[walk.candidates[child]] = std::max(0.0, left[walk.candidates[child]] - coins.target[slot * coins.v + walk.candidates[child]]);
  double total = 0;
  for (const double x : left) total += x;
  for (const double x : left) sums.push_back(sums.back() + x / total);
  for (uint32_t v = 0; v < coins.v; ++v) {
    if (sums[v + 1] == sums[v]) continue;
    coins.final_coin[0] = static_cast<float>((sums[v] + sums[v + 1]) / 2);
    walk.clear();
    TreeTier::get().verify_coins(walk.raw(), coins.raw());
    out[walk.emitted(0)] += weight * (1 - edges.back()) * (sums[v + 1] - sums[v]);
  }
}

// Multiples of 1/64, some of them zero.
void random_probabilities(std::mt19937& rng, float* p, uint32_t v) {
  std::vector<uint32_t> parts(v);
  for (int i = 0; i < 64; ++i) ++parts[rng() % 4 ? rng() % v : 0];
  for (uint32_t i = 0; i < v; ++i) p[i] = static_cast<float>(parts[i]) / 64;
}

void expect_equal(const Distribution& a, const Distribution& b) {
  Distribution all = a;
  for (const auto& [tokens, p] : b) all[tokens] -= p;
  for (const auto& [tokens, difference] : all) EXPECT_NEAR(difference, 0, 1e-9) << ::testing::PrintToString(tokens);
}

}  // namespace

// T2 and T6.
TEST(TreeOps, TheCoinWalkHasTheTargetsDistribution) {
  std::mt19937 rng(11);
  for (int round = 0; round < TreeTier::rounds(200); ++round) {
    const uint32_t k = 1 + rng() % 7, v = 3 + rng() % 6;
    WalkArrays walk(1, k, 1 + rng() % k);
    const std::vector<int64_t> parents = random_tree(rng, walk, 0, v);
    CoinArrays coins(1, k, v);
    for (uint32_t slot = 0; slot < k; ++slot) random_probabilities(rng, coins.target.data() + slot * v, v);
    Distribution plain, drawn;
    std::vector<int32_t> prefix;
    plain_distribution(walk, coins, 0, 0, prefix, 1, plain);
    coin_distribution(walk, coins, 0, 0, 1, drawn);
    expect_equal(plain, drawn);
    // Siblings the other way round.
    for (uint32_t slot = 0; slot < k; ++slot) {
      Ids children;
      for (int64_t c = walk.next_token[slot]; c >= 0; c = walk.next_sibling[c]) children.insert(children.begin(), c);
      walk.next_token[slot] = children.empty() ? -1 : children[0];
      for (size_t i = 0; i < children.size(); ++i) walk.next_sibling[children[i]] = i + 1 < children.size() ? children[i + 1] : -1;
    }
    drawn.clear();
    coin_distribution(walk, coins, 0, 0, 1, drawn);
    expect_equal(plain, drawn);
  }
}

// T3: with dead slots nothing of token 0 is over-represented, which padding as children of the root would be.
TEST(TreeOps, DeadSlotsDoNotBendTheDistribution) {
  const std::vector<float> p = {0.05f, 0.35f, 0.3f, 0.2f, 0.1f};
  std::mt19937 rng(3);
  std::uniform_real_distribution<float> uniform(0, std::nextafter(1.0f, 0.0f));
  const auto draw = [&](bool pads_are_linked) {
    WalkArrays walk(1, 8, 2);
    std::vector<int64_t> parents(8, pads_are_linked ? 0 : -1);
    parents[0] = -1;
    link_request(walk, 0, parents);
    CoinArrays coins(1, 8, 5);
    for (uint32_t slot = 0; slot < 8; ++slot) std::copy(p.begin(), p.end(), coins.target.begin() + slot * 5);
    std::vector<double> seen(5);
    constexpr int kDraws = TreeTier::rounds(200000);
    for (int i = 0; i < kDraws; ++i) {
      for (float& coin : coins.coins) coin = uniform(rng);
      coins.final_coin[0] = uniform(rng);
      walk.clear();
      TreeTier::get().verify_coins(walk.raw(), coins.raw());
      seen[walk.emitted(0)[0]] += 1.0 / kDraws;
    }
    double chi = 0;
    for (int v = 0; v < 5; ++v) chi += kDraws * (seen[v] - p[v]) * (seen[v] - p[v]) / p[v];
    return std::pair(chi, seen[0]);
  };
  EXPECT_LT(draw(false).first, 23.5) << "chi-square of 4 degrees of freedom, p > 1e-4";
  EXPECT_GT(draw(true).second, 0.2) << "what linked padding does to token 0";
}

// T1, T5, T7: the greedy walk against following the target by hand, alone and in a batch.
TEST(TreeOps, GreedyWalksFollowTheTarget) {
  std::mt19937 rng(21);
  for (int round = 0; round < TreeTier::rounds(500); ++round) {
    const uint32_t b = 1 + rng() % 4, k = 1 + rng() % 64, v = 2 + rng() % 5;
    WalkArrays walk(b, k, 1 + rng() % k);
    std::vector<std::vector<int64_t>> parents;
    for (uint32_t r = 0; r < b; ++r) parents.push_back(random_tree(rng, walk, r, v));
    Ids target(b * k);
    for (int64_t& token : target) token = rng() % v;
    TreeTier::get().verify_greedy(walk.raw(), target.data());
    for (uint32_t r = 0; r < b; ++r) {
      std::vector<int32_t> expected;
      for (int64_t at = 0; at >= 0;) {
        const int64_t want = target[r * k + at];
        expected.push_back(static_cast<int32_t>(want));
        int64_t next = -1;
        for (uint32_t j = 1; j < k && next < 0 && expected.size() < walk.s; ++j)
          if (parents[r][j] == at && walk.candidates[r * k + j] == want) next = j;
        at = next;
      }
      EXPECT_EQ(walk.emitted(r), expected);
    }
  }
}

namespace {

struct BuildArrays {
  Ids parent_list, selected, prefix, positions, retrieve, next_token, next_sibling;
  std::vector<uint8_t> mask;
  std::vector<uint32_t> orphans;
  turbo_tree_build raw(uint32_t b, uint32_t k, uint32_t t, uint32_t d, uint32_t mode, size_t mask_bytes) {
    for (Ids* out : {&positions, &retrieve, &next_token, &next_sibling}) out->assign(b * k, -7);
    mask.assign(mask_bytes, mode == TURBO_TREE_MASK_FULL ? 1 : 0);
    orphans.assign(b, 99);
    return {sizeof(turbo_tree_build), b, k, t, d, mode, parent_list.data(), selected.data(), prefix.data(), mask.data(), mask.size(),
            positions.data(), retrieve.data(), next_token.data(), next_sibling.data(), orphans.data()};
  }
};

}  // namespace

TEST(TreeOps, BuildsTreesFromCandidatePools) {
  std::mt19937 rng(8);
  for (int round = 0; round < TreeTier::rounds(300); ++round) {
    const uint32_t b = 1 + rng() % 3, t = 1 + rng() % 4, d = 1 + rng() % 5;
    const uint32_t pool = t + (d - 1) * t * t, k = 1 + rng() % std::min(63u, pool);
    BuildArrays arrays;
    std::vector<std::vector<double>> score(b, std::vector<double>(pool));
    std::vector<std::vector<int64_t>> parent(b, std::vector<int64_t>(pool, -1));
    for (uint32_t r = 0; r < b; ++r) {
      arrays.prefix.push_back(rng() % 100);
      // Steps as a drafter makes them: the best t of each step's t * t (or t) go on.
      std::vector<int64_t> live;
      for (uint32_t i = 0; i < t; ++i) {
        score[r][i] = 0.2 + 0.7 * (rng() % 1000) / 1000;
        live.push_back(i);
      }
      Ids rows = {-1};
      for (uint32_t i = 0; i < t; ++i) rows.push_back(i);
      for (uint32_t step = 1; step < d; ++step) {
        const uint32_t first = t + t * t * (step - 1);
        std::vector<int64_t> all;
        for (uint32_t i = 0; i < t * t; ++i) {
          parent[r][first + i] = live[i / t];
          score[r][first + i] = score[r][live[i / t]] * (0.1 + 0.8 * (rng() % 1000) / 1000);
          all.push_back(first + i);
        }
        std::sort(all.begin(), all.end(), [&](int64_t x, int64_t y) { return score[r][x] > score[r][y]; });
        all.resize(t);
        live = all;
        if (step + 1 < d) rows.insert(rows.end(), live.begin(), live.end());
      }
      rows.resize(t * (d - 1) + 1);
      if (d > 1) arrays.parent_list.insert(arrays.parent_list.end(), rows.begin(), rows.end());
      Ids best(pool);
      for (uint32_t i = 0; i < pool; ++i) best[i] = i;
      std::sort(best.begin(), best.end(), [&](int64_t x, int64_t y) { return score[r][x] > score[r][y]; });
      best.resize(k - 1);
      std::sort(best.begin(), best.end());
      arrays.selected.insert(arrays.selected.end(), best.begin(), best.end());
    }
    const uint32_t mode = rng() % 3;
    size_t bytes = b * k * k;
    if (mode == TURBO_TREE_MASK_PACKED) bytes = b * k * detail::packed_bytes(k);
    if (mode == TURBO_TREE_MASK_FULL)
      for (const int64_t prefix : arrays.prefix) bytes += k * prefix;
    TreeTier::get().build(arrays.raw(b, k, t, d, mode, bytes));
    size_t at = 0;
    for (uint32_t r = 0; r < b; ++r) {
      EXPECT_EQ(arrays.orphans[r], 0u);
      std::vector<int64_t> slot_parent(k, -1);
      for (uint32_t j = 1; j < k; ++j) {
        const int64_t* begin = arrays.selected.data() + r * (k - 1);
        const int64_t above = parent[r][begin[j - 1]];
        slot_parent[j] = above < 0 ? 0 : std::find(begin, begin + k - 1, above) - begin + 1;
      }
      Ids next_token(k), next_sibling(k);
      detail::link_children(slot_parent.data(), k, next_token.data(), next_sibling.data());
      for (uint32_t j = 0; j < k; ++j) {
        EXPECT_EQ(arrays.next_token[r * k + j], next_token[j]);
        EXPECT_EQ(arrays.next_sibling[r * k + j], next_sibling[j]);
        EXPECT_EQ(arrays.retrieve[r * k + j], r * k + j);
        uint64_t visible = 0;
        int64_t depth = -1;
        for (int64_t above = j; above >= 0; above = slot_parent[above], ++depth) visible |= uint64_t{1} << above;
        EXPECT_EQ(arrays.positions[r * k + j], arrays.prefix[r] + depth);
        for (uint32_t i = 0; i < k; ++i) {
          const bool sees = visible >> i & 1;
          const size_t prefix = mode == TURBO_TREE_MASK_FULL ? arrays.prefix[r] : 0, pitch = prefix + k;
          const bool marked = mode == TURBO_TREE_MASK_PACKED ? arrays.mask[at + j * detail::packed_bytes(k) + i / 8] >> i % 8 & 1
                                                             : arrays.mask[at + j * pitch + prefix + i] == 1;
          EXPECT_EQ(marked, sees);
        }
        for (int64_t i = 0; mode == TURBO_TREE_MASK_FULL && i < arrays.prefix[r]; ++i) EXPECT_EQ(arrays.mask[at + j * (arrays.prefix[r] + k) + i], 1);
      }
      at += mode == TURBO_TREE_MASK_PACKED ? k * detail::packed_bytes(k) : k * (k + (mode == TURBO_TREE_MASK_FULL ? arrays.prefix[r] : 0));
    }
  }
}

TEST(TreeOps, OrphansAreToldAndLeftAlone) {
  BuildArrays arrays;  // t = 2, d = 2: candidates 2, 3 lie below the first live one
  arrays.prefix = {10};
  arrays.parent_list = {-1, 0, 1};
  arrays.selected = {1, 2, 4};  // 2 is a child of 0, which was not selected; 4 one of 1
  TreeTier::get().build(arrays.raw(1, 4, 2, 2, TURBO_TREE_MASK_SLOTS, 16));
  EXPECT_EQ(arrays.orphans[0], 1u);
  EXPECT_EQ(arrays.next_token, (Ids{1, 3, -1, -1}));
  EXPECT_EQ(arrays.next_sibling, (Ids{-1, -1, -1, -1}));
  EXPECT_EQ(arrays.positions, (Ids{10, 11, 11, 12}));
  EXPECT_EQ(arrays.mask, (std::vector<uint8_t>{1, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1, 0, 1, 1, 0, 1}));
}

TEST(TreeOps, RefusesWhatIsNoTree) {
  WalkArrays loop(1, 3, 3);
  loop.candidates = {0, 1, 2};
  loop.next_token = {1, -1, -1};
  loop.next_sibling = {-1, 1, -1};
  const Ids target(3, 9);
  EXPECT_THROW(TreeTier::get().verify_greedy(loop.raw(), target.data()), Failure);
  WalkArrays far(1, 3, 3);
  far.next_token = {1000, -1, -1};
  EXPECT_THROW(TreeTier::get().verify_greedy(far.raw(), target.data()), Failure);
  WalkArrays row(1, 3, 3);
  row.retrieve[0] = 7;
  EXPECT_THROW(TreeTier::get().verify_greedy(row.raw(), target.data()), Failure);
  WalkArrays wide(1, 65, 1);
  EXPECT_THROW(TreeTier::get().verify_greedy(wide.raw(), target.data()), Failure);
  BuildArrays arrays;
  arrays.prefix = {1};
  arrays.selected = {5};
  EXPECT_THROW(TreeTier::get().build(arrays.raw(1, 2, 2, 1, TURBO_TREE_MASK_SLOTS, 4)), Failure) << "the pool has two candidates";
  arrays.selected = {0};
  EXPECT_THROW(TreeTier::get().build(arrays.raw(1, 2, 2, 1, TURBO_TREE_MASK_SLOTS, 3)), Failure) << "the mask is too small";
  TreeTier::get().build(arrays.raw(1, 2, 2, 1, TURBO_TREE_MASK_SLOTS, 4));
}

TEST(TreeOps, ProbabilitiesThatAreNoneFailTheirRequestAlone) {
  WalkArrays walk = golden_tree();
  CoinArrays coins(2, 6, kGoldenVocabulary);
  std::fill(coins.target.begin(), coins.target.end(), 0.05f);
  coins.target[3] = NAN;
  TreeTier::get().verify_coins(walk.raw(), coins.raw());
  EXPECT_EQ(coins.failed, (std::vector<uint32_t>{1, 0}));
  coins.target[3] = -0.1f;
  walk.clear();
  TreeTier::get().verify_coins(walk.raw(), coins.raw());
  EXPECT_EQ(coins.failed, (std::vector<uint32_t>{1, 0}));
}

// A token of probability 0 is never emitted, whatever the coins.
TEST(TreeOps, ImpossibleTokensAreNeverEmitted) {
  WalkArrays walk(1, 3, 2);
  walk.candidates = {0, 1, 2};
  link_request(walk, 0, {-1, 0, 0});
  CoinArrays coins(1, 3, 4);
  for (uint32_t slot = 0; slot < 3; ++slot) coins.target[slot * 4 + 2] = 1;  // token 2 alone
  for (const float coin : {0.0f, 0.5f, 0.99999994f})
    for (const float last : {0.0f, 0.99999994f}) {
      std::fill(coins.coins.begin(), coins.coins.end(), coin);
      coins.final_coin[0] = last;
      walk.clear();
      TreeTier::get().verify_coins(walk.raw(), coins.raw());
      EXPECT_EQ(walk.emitted(0), (std::vector<int32_t>{2, 2}));
    }
}

TEST(TreeOps, TheSelfTestFindsEachWrongOp) {
  EXPECT_EQ(find_fault(*TreeTier::get().table(), TreeTier::get().self()), nullptr);
  EXPECT_EQ(find_fault(*host_table(), nullptr), nullptr);
  turbo_tree_ops wrong = *host_table();
  wrong.link = [](void*, const turbo_tree_links*, turbo_error*) -> turbo_status { return TURBO_INTERNAL; };
  EXPECT_STREQ(find_fault(wrong, nullptr), "link fails");
  wrong = *host_table();
  wrong.build = [](void* self, const turbo_tree_build* a, turbo_error* e) -> turbo_status {
    const turbo_status status = host_table()->build(self, a, e);
    a->positions[3] = 8;
    return status;
  };
  EXPECT_STREQ(find_fault(wrong, nullptr), "build gives a wrong tree");
  wrong = *host_table();
  wrong.verify_greedy = [](void* self, const turbo_tree_walk* walk, const int64_t* target, turbo_error* e) -> turbo_status {
    turbo_tree_walk first_child = *walk;
    first_child.n_columns = 2;
    return host_table()->verify_greedy(self, &first_child, target, e);
  };
  EXPECT_STREQ(find_fault(wrong, nullptr), "the greedy walk takes another path");
  wrong = *host_table();
  wrong.verify_coins = [](void* self, const turbo_tree_walk* walk, const turbo_tree_coins* coins, turbo_error* e) -> turbo_status {
    turbo_tree_coins loose = *coins;
    loose.threshold_single = 0;
    return host_table()->verify_coins(self, walk, &loose, e);
  };
  EXPECT_STREQ(find_fault(wrong, nullptr), "the coin walk takes another path");
}

TEST(TreeOps, BitsPackedBySegments) {
  const std::vector<uint8_t> x = {1, 0, 1, 1, 0, 0, 0, 0, 9, /**/ 0, 1};
  const std::vector<uint64_t> in = {0, 9, 11}, out = {0, 2, 3};
  std::vector<uint8_t> y(3, 0xff);
  TreeTier::get().pack_bits(x.data(), in.data(), 2, out.data(), y.data());
  EXPECT_EQ(y, (std::vector<uint8_t>{0x0d, 0x01, 0x02}));
}

}  // namespace turbo::tree_ops
