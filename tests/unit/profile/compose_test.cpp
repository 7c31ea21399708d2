// Drafters over others: keys, options of each of them, and what contradicts itself.
#include <gtest/gtest.h>

#include "support.h"

namespace turbo::profile {
namespace {

using Names = std::vector<std::string>;

TEST(Compose, AListOfDraftersWithOptionsForEach) {
  const auto p = parse(R"(
drafter:
  name: first
  over: [ngram, mine]
  max_trie_depth: 20
  options:
    mine: { speed: 3 }
    ngram: { max_slots: 6 }
)");
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_EQ(p->drafter.over, (Names{"ngram", "mine"}));
  EXPECT_EQ(p->drafter.members(), (Names{"first", "ngram", "mine"}));
  EXPECT_EQ(p->drafter.options.at("mine.speed"), "3");
  EXPECT_EQ(p->drafter.options.at("ngram.max_slots"), "6");
  EXPECT_EQ(p->drafter.options.at("max_trie_depth"), "20");
}

TEST(Compose, OnTheCommandLineToo) {
  const auto p = parse_flags({{"--drafter", "merge"},
                              {"--set", "drafter.over=ngram,phantom"},
                              {"--set", "drafter.options.phantom.ghosts=3"},
                              {"--speculative-ngram-capacity", "5000"},
                              {"--phantom-num-buffers", "3"},
                              {"--ssd-enable", ""}});
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_EQ(p->drafter.members(), (Names{"merge", "ngram", "phantom", "saguaro"}));
  EXPECT_EQ(p->drafter.options.at("phantom.ghosts"), "3");
  EXPECT_EQ(p->drafter.options.at("capacity"), "5000");
  EXPECT_EQ(p->drafter.options.at("buffers"), "3");
}

TEST(Compose, AnotherDrafterOnTheCommandLineDropsTheWholeComposition) {
  const auto p = parse("drafter: { name: first, over: [ngram, phantom], ghosts: 3 }", {{"drafter.name", "ngram", "--drafter"}});
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_TRUE(p->drafter.over.empty());
  EXPECT_TRUE(p->drafter.options.empty());
  EXPECT_TRUE(adjusted(*p, "--drafter selects drafter 'ngram'"));
}

TEST(Compose, ContradictionsAreErrors) {
  const auto said = [](const char* text) { return parse(std::string("drafter: { ") + text + " }"); };
  EXPECT_SAYS(said("name: first"), "drafter 'first' works over others, but drafter.over names none | for example drafter: { name: first, over: [ngram] }");
  EXPECT_SAYS(said("name: saguaro"), "drafter 'saguaro' works over others, but drafter.over names none");
  EXPECT_SAYS(said("name: merge, over: []"), "drafter.over names none");
  EXPECT_SAYS(said("name: ngram, over: [phantom]"), "drafter.over: drafter 'ngram' works over no others | drafters that do are first and merge");
  EXPECT_SAYS(said("name: first, over: [ngram, ngram]"), "drafter.over: 'ngram' is listed twice");
  EXPECT_SAYS(said("name: first, over: [first]"), "drafter 'first' cannot work over itself");
  EXPECT_SAYS(said("name: mine, over: [mine]"), "drafter 'mine' cannot work over itself");
  EXPECT_SAYS(said("name: first, over: [merge]"), "drafter 'merge' works over others itself and cannot stand there");
  EXPECT_SAYS(said("name: first, over: [saguaro]"), "set drafter.outcome_cache: true instead");
  EXPECT_SAYS(said("name: first, over: ['off']"), "expected drafters but found 'off'");
  EXPECT_SAYS(said("name: first, over: ['a b']"), "drafter.over: expected names of letters");
  EXPECT_SAYS(said("name: first, over: [a, b, c, d, e, f, g, h, i]"), "expected at most 8 drafters but found 9");
  EXPECT_SAYS(said("name: saguaro, over: [ngram, phantom]"), "the outcome cache wraps one drafter, but 2 are named");
  EXPECT_SAYS(said("name: saguaro, over: [ngram], outcome_cache: true"), "the outcome cache cannot wrap itself");
  EXPECT_SAYS(said("name: 'off', over: [ngram]"), "drafter.over: no drafter is selected");
  EXPECT_SAYS(said("name: first, over: [ngram, standalone]"), "ok");  // that it lacks its model is said once it is known to exist
  EXPECT_SAYS(said("name: first, over: ngram"), "drafter.over: expected a list");
  EXPECT_SAYS(said("name: ngram, outcome_cache: true, options: { entries: 5 }"), "ok");
}

TEST(Compose, OptionsAreCheckedForWhomTheyAreMeant) {
  const auto said = [](const char* options, const char* over = "ngram, phantom") {
    return parse(fmt::format("drafter: {{ name: first, over: [{}], {} }}", over, options));
  };
  EXPECT_SAYS(said("options: { medusa: { heads: 3 } }"),
              "drafter.options.medusa.heads: 'medusa' is not one of the drafters at work | they are first, ngram, phantom");
  EXPECT_SAYS(said("options: { phantom: { ghosts: 9 } }"), "drafter.options.phantom.ghosts: expected");
  EXPECT_SAYS(said("ghosts: 9"), "drafter.ghosts: expected");
  EXPECT_SAYS(said("ghosts: 3", "ngram"), "drafter.ghosts: drafter 'first' does not have it");
  EXPECT_SAYS(said("ghosts: 3", "ngram, mine"), "ok");
  EXPECT_SAYS(said("steps: 3"), "drafter.steps");
  EXPECT_SAYS(said("options: { ngram: { capacity: 10 } }"), "10 nodes cannot hold one sequence of max_trie_depth 18");
  EXPECT_SAYS(said("options: { ngram: { capacity: 10, max_trie_depth: 5 } }"), "ok");
  EXPECT_SAYS(said("max_trie_depth: 5, options: { ngram: { capacity: 10 } }"), "ok");
  EXPECT_SAYS(said("options: { ngram: { capacity: { x: 1 } } }"), "drafter.options.ngram.capacity: expected a single value but found a map");
  EXPECT_SAYS(said("options: { ngram: [1] }"), "drafter.options.ngram: expected a single value but found a list");
  EXPECT_SAYS(said("options: { ngram: { capacity: 100 }, ngram.capacity: 200 }"), "the option is given twice");
  EXPECT_SAYS(parse("drafter: { name: first, over: [medusa], model: /m, options: { medusa: { typical_acceptance: target } } }"),
              "drafter.options.medusa.typical_acceptance: 'target' can change the output");
  EXPECT_SAYS(parse("kv: { options: { tq3: { seed: 1 } } }"), "kv.options.tq3: expected a single value");
}

TEST(Compose, DraftLengthIsNotThatOfOneOfThem) {
  const auto p = parse("drafter: { name: first, over: [ngram, standalone], model: /m, steps: 3, draft_tokens: 12 }");
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_EQ(p->drafter.draft_tokens, 12);
  EXPECT_EQ(p->drafter.steps, 3);
}

TEST(Compose, NgramOptionsMayStandDirectlyUnderDrafter) {
  const auto p = parse("drafter: { name: ngram, suffix: off, corpus: /tmp/c.bin }");
  ASSERT_TRUE(p.is_ok()) << what(p);
  EXPECT_EQ(p->drafter.options.at("suffix"), "off");
  EXPECT_EQ(p->drafter.options.at("corpus"), "/tmp/c.bin");
  EXPECT_SAYS(parse("drafter: { name: ngram, suffix: maybe }"), "drafter.suffix: expected one of on, off");
  EXPECT_SAYS(parse("drafter: { name: phantom, suffix: on }"), "drafter.suffix: drafter 'phantom' does not have it");
}

}  // namespace
}  // namespace turbo::profile
