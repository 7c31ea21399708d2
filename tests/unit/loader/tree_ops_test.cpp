// Each tree op comes from the first offer that computes it rightly, else from the host.
#include "loader/tree_ops.h"

#include <gtest/gtest.h>
#include <turbo/kernel/tree_ops.hpp>

namespace turbo::loader {
namespace {

const turbo_tree_ops& host() { return *tree_ops::host_table(); }
std::vector<std::string> who(const TreeOps& ops) {
  std::vector<std::string> names;
  for (const TreeOps::Choice& choice : ops.choices) names.push_back(choice.who);
  return names;
}

}  // namespace

TEST(TreeOpsChoice, WithoutOffersTheHostComputes) {
  const TreeOps ops = choose_tree_ops({});
  EXPECT_EQ(who(ops), (std::vector<std::string>{"host", "host", "host", "host"}));
  EXPECT_EQ(ops.table.link, host().link);
  EXPECT_EQ(ops.text(), "build, link, verify_greedy, verify_coins: host");
}

TEST(TreeOpsChoice, AWrongOpFallsToTheNextOfferAlone) {
  turbo_tree_ops wrong = host();
  wrong.link = [](void* self, const turbo_tree_links* a, turbo_error* e) -> turbo_status {
    const turbo_status status = host().link(self, a, e);
    a->next_token[0] = 2;
    return status;
  };
  wrong.verify_coins = nullptr;
  turbo_tree_ops old = host();
  old.struct_size = offsetof(turbo_tree_ops, verify_coins);
  int a = 0, b = 0;
  const TreeOpsOffer offers[] = {{"none", nullptr, nullptr}, {"first", &wrong, &a}, {"second", &old, &b}};
  const TreeOps ops = choose_tree_ops(offers);
  EXPECT_EQ(who(ops), (std::vector<std::string>{"first", "second", "first", "host"}));
  EXPECT_EQ(ops.link_self, &b);
  EXPECT_EQ(ops.build_self, &a);
  EXPECT_EQ(ops.coins_self, nullptr);
  EXPECT_EQ(ops.choices[1].losses, (std::vector<std::string>{"first: link gives wrong links"}));
  EXPECT_EQ(ops.choices[3].losses, (std::vector<std::string>{"first: is not there", "second: is not there"}));
  EXPECT_EQ(ops.text(), "build: first; link: second; verify_greedy: first; verify_coins: host");
}

}  // namespace turbo::loader
