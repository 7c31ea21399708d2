// What drafters learn from a verified draft.
#include <turbo/draft/draft_nodes.hpp>

#include <gtest/gtest.h>

namespace turbo::draft {
namespace {

using Ids = std::vector<int32_t>;

//        5 ── 6 ── 7
// root <
//        8
DraftNodes tree() {
  DraftNodes nodes;
  nodes.push(5, -1, 0.9f);
  nodes.push(6, 0, 0.8f);
  nodes.push(8, -1, 0.1f);
  nodes.push(7, 1, 0.5f);
  return nodes;
}

TEST(AcceptedPath, FollowsTheTokensThatWereSaid) {
  Ids seen;
  const Ids said{5, 6, 9};
  const AcceptedPath path = accepted_path(tree(), said, 2, [&](int32_t node) { seen.push_back(node); });
  EXPECT_EQ(path.length, 2u);
  EXPECT_EQ(path.last, 1);
  EXPECT_EQ(seen, (Ids{0, 1}));
}

TEST(AcceptedPath, StopsWhereItsOwnDraftDoes) {
  const Ids said{5, 6, 7, 9}, other{5, 1, 7}, none{1, 6};
  EXPECT_EQ(accepted_path(tree(), said, 1).last, 0) << "no further than was accepted";
  EXPECT_EQ(accepted_path(tree(), said, 9).last, 3) << "no further than tokens or nodes go";
  // The next two were another drafter's: what held of this one is what it is judged by.
  EXPECT_EQ(accepted_path(tree(), other, 3).length, 1u);
  EXPECT_EQ(accepted_path(tree(), other, 3).last, 0);
  EXPECT_EQ(accepted_path(tree(), none, 2).length, 0u);
  EXPECT_EQ(accepted_path(tree(), none, 2).last, -1);
  EXPECT_EQ(accepted_path(DraftNodes{}, said, 3).length, 0u);
}

TEST(RunningAcceptance, CountsTrials) {
  const DraftNodes nodes = tree();
  EXPECT_DOUBLE_EQ(running_acceptance(0.5, nodes, {0, -1}, 0.1), 0.95 * 0.5) << "the first node did not hold";
  EXPECT_DOUBLE_EQ(running_acceptance(0.5, nodes, {1, 0}, 0.1), 0.95 * 0.5 + 0.05 / 2);
  EXPECT_DOUBLE_EQ(running_acceptance(0.5, nodes, {1, 2}, 0.1), 0.95 * 0.5 + 0.05) << "nothing was drafted behind it";
  EXPECT_DOUBLE_EQ(running_acceptance(0.5, nodes, {3, 3}, 0.1), 0.95 * 0.5 + 0.05);
  EXPECT_DOUBLE_EQ(running_acceptance(0.5, DraftNodes{}, {}, 0.1), 0.5) << "no draft tells nothing";
  double share = 0.6;
  for (int i = 0; i < 200; ++i) share = running_acceptance(share, nodes, {0, -1}, 0.2);
  EXPECT_EQ(share, 0.2);
  for (int i = 0; i < 200; ++i) share = running_acceptance(share, nodes, {3, 3}, 0.2);
  EXPECT_EQ(share, 0.95);
}

}  // namespace
}  // namespace turbo::draft
