// What the profile says about drafters, as the loader gets it.
#include <gtest/gtest.h>

#include "engine/resolve.h"

namespace turbo::engine {
namespace {

using Names = std::vector<std::string>;
using Texts = loader::OptionTexts;

loader::Request request_of(const profile::Profile::Drafter& drafter) {
  profile::Profile profile;
  profile.drafter = drafter;
  loader::Request request;
  add_drafters(profile, 12, request);
  return request;
}

TEST(DrafterRequest, OneThatStandsAloneGetsEverything) {
  profile::Profile::Drafter drafter;
  drafter.name = "mine";
  drafter.model = "/m";
  drafter.steps = 3;
  drafter.topk = 2;
  drafter.options = {{"speed", "4"}};
  const auto request = request_of(drafter);
  EXPECT_EQ(request.drafter, "mine");
  EXPECT_TRUE(request.drafter_over.empty());
  EXPECT_EQ(request.options.at("drafter"), (Texts{{"model", "/m"}, {"speed", "4"}, {"steps", "3"}, {"topk", "2"}}));
  EXPECT_EQ(request.files.at("drafter").size(), 1u);
}

TEST(DrafterRequest, OptionsGoToThoseThatHaveThem) {
  profile::Profile::Drafter drafter;
  drafter.name = "first";
  drafter.over = {"ngram", "phantom", "standalone"};
  drafter.model = "/m";
  drafter.steps = 3;
  drafter.options = {{"ghosts", "3"}, {"capacity", "100"}, {"own", "1"}, {"ngram.capacity", "200"}, {"ngram.max_slots", "6"}};
  const auto request = request_of(drafter);
  EXPECT_EQ(request.drafter, "first");
  EXPECT_EQ(request.drafter_over.at("first"), (Names{"ngram", "phantom", "standalone"}));
  EXPECT_EQ(request.options.at("drafter"), (Texts{{"own", "1"}}));
  EXPECT_EQ(request.options.at("drafter:ngram"), (Texts{{"capacity", "200"}, {"max_slots", "6"}}));
  EXPECT_EQ(request.options.at("drafter:phantom"), (Texts{{"capacity", "100"}, {"ghosts", "3"}}));
  EXPECT_EQ(request.options.at("drafter:standalone"), (Texts{{"model", "/m"}, {"steps", "3"}}));
  EXPECT_EQ(request.files.count("drafter"), 0u);
  EXPECT_EQ(request.files.at("drafter:standalone").size(), 1u);
  EXPECT_EQ(request.option_words.at("drafter:ngram").name, "drafter.options.ngram");
}

TEST(DrafterRequest, TheOutcomeCacheIsAroundTheSelectedOne) {
  profile::Profile::Drafter drafter;
  drafter.name = "mine";
  drafter.model = "/m";
  drafter.outcome_cache = true;
  drafter.options = {{"speed", "4"}, {"saguaro.entries", "7"}};
  auto request = request_of(drafter);
  EXPECT_EQ(request.drafter, "saguaro");
  EXPECT_EQ(request.drafter_over.at("saguaro"), (Names{"mine"}));
  EXPECT_EQ(request.options.at("drafter"), (Texts{{"entries", "7"}}));
  EXPECT_EQ(request.options.at("drafter:mine"), (Texts{{"model", "/m"}, {"speed", "4"}}));
  drafter.name = "merge";
  drafter.over = {"ngram", "mine"};
  request = request_of(drafter);
  EXPECT_EQ(request.drafter_over.at("saguaro"), (Names{"merge"}));
  EXPECT_EQ(request.drafter_over.at("merge"), (Names{"ngram", "mine"}));
  EXPECT_EQ(request.options.at("drafter:merge"), (Texts{{"speed", "4"}}));
}

TEST(DrafterRequest, LayersOfTheTargetThatDraftAreSaidAsPlanned) {
  profile::Profile::Drafter drafter;
  drafter.name = "first";
  drafter.over = {"ngram", "self_spec"};
  EXPECT_EQ(request_of(drafter).options.at("drafter:self_spec"), (Texts{{"layers", "4"}}));
  drafter.options = {{"self_spec.layers", "3"}};
  EXPECT_EQ(request_of(drafter).options.at("drafter:self_spec"), (Texts{{"layers", "3"}}));
}

}  // namespace
}  // namespace turbo::engine
