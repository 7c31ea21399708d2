#include "loader/tree_ops.h"

#include <turbo/kernel/tree_ops.hpp>
#include <turbo/kernel/tree_ops_check.hpp>

#include <cstddef>

namespace turbo::loader {
namespace {

using Check = const char* (*)(const turbo_tree_ops&, void*);

bool reaches(const turbo_tree_ops& table, size_t offset) { return table.struct_size >= offset + sizeof(void*); }

// The op of the first offer that is right.
template <typename Op>
void choose(std::span<const TreeOpsOffer> offers, const char* name, Op turbo_tree_ops::*member, size_t offset, Check check, TreeOps& chosen,
            void*& self) {
  TreeOps::Choice choice{name, "host", {}};
  chosen.table.*member = tree_ops::host_table()->*member;
  for (const TreeOpsOffer& offer : offers) {
    if (!offer.table) continue;
    const char* fault = !reaches(*offer.table, offset) || !(offer.table->*member) ? "is not there" : check(*offer.table, offer.self);
    if (fault) {
      choice.losses.push_back(offer.who + ": " + fault);
      continue;
    }
    chosen.table.*member = offer.table->*member;
    self = offer.self;
    choice.who = offer.who;
    break;
  }
  chosen.choices.push_back(std::move(choice));
}

}  // namespace

std::string TreeOps::text() const {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    text += choices[i].op;
    const bool same = i + 1 < choices.size() && choices[i + 1].who == choices[i].who;
    text += same ? ", " : ": " + choices[i].who + (i + 1 < choices.size() ? "; " : "");
  }
  return text;
}

TreeOps choose_tree_ops(std::span<const TreeOpsOffer> offers) {
  using T = turbo_tree_ops;
  TreeOps chosen;
  chosen.table.struct_size = sizeof(T);
  choose(offers, "build", &T::build, offsetof(T, build), &tree_ops::find_build_fault, chosen, chosen.build_self);
  choose(offers, "link", &T::link, offsetof(T, link), &tree_ops::find_link_fault, chosen, chosen.link_self);
  choose(offers, "verify_greedy", &T::verify_greedy, offsetof(T, verify_greedy), &tree_ops::find_greedy_fault, chosen, chosen.greedy_self);
  choose(offers, "verify_coins", &T::verify_coins, offsetof(T, verify_coins), &tree_ops::find_coins_fault, chosen, chosen.coins_self);
  return chosen;
}

}  // namespace turbo::loader
