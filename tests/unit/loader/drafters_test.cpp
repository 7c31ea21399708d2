// Drafters over other drafters: who is opened, in which order, with which options, and what is told when one fails.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "helpers.h"
#include "loader/resolve.h"

namespace turbo::loader {
namespace {

class Drafters : public testing::Test {
 protected:
  Drafters() {
    installation.add_cpu();
    installation.add("drafters", "drafters.so",
                     "schema: 1\nid: test.drafters\nname: Drafters\nversion: 1.0.0\nabi: { major: 1, minor: 0 }\nlicense: Apache-2.0\n"
                     "libraries:\n  - path: drafters.so\n    components:\n      - { kind: drafter, name: alpha, tier: cpu }\n"
                     "      - { kind: drafter, name: beta, tier: cpu }\n      - { kind: drafter, name: over, tier: cpu }\n");
    request.weight_types = {{41, "q1_0"}, {0, "f32"}};
    request.drafter = "over";
    request.drafter_over = {{"over", {"beta", "alpha"}}};
    services.log = log.logger();
  }
  Status resolve() {
    resolution.reset();
    catalog = std::make_unique<Catalog>(installation.scan());
    Result<Resolution> resolved = loader::resolve(request, *catalog, services, &report);
    if (resolved) resolution = std::make_unique<Resolution>(*std::move(resolved));
    return resolved.status();
  }
  const Report::Slot* slot(const std::string& name) const {
    for (const Report::Slot& slot : report.slots)
      if (slot.slot == name) return &slot;
    return nullptr;
  }
  std::string warnings() const { return fmt::format("{}", fmt::join(report.warnings, "\n")); }

  Installation installation;
  CapturedLog log;
  Request request;
  Services services;
  Report report;
  std::unique_ptr<Catalog> catalog;  // of the resolution's candidates
  std::unique_ptr<Resolution> resolution;
};

TEST_F(Drafters, InnerOnesOpenFirstInOrderWithTheirOwnOptionsAndCloseLast) {
  request.options["drafter:alpha"] = {{"depth", "9"}};
  ASSERT_TRUE(resolve().is_ok()) << resolve().message();
  for (const char* name : {"drafter", "drafter:alpha", "drafter:beta"}) {
    ASSERT_TRUE(slot(name)) << name;
    ASSERT_TRUE(slot(name)->chosen) << name;
    EXPECT_EQ(slot(name)->chosen->plugin, "test.drafters");
  }
  EXPECT_EQ(slot("drafter")->chosen->component, "over");
  EXPECT_EQ(slot("drafter:alpha")->chosen->component, "alpha");
  EXPECT_EQ(log.count("create over"), 0) << "networks would need the weights";
  ASSERT_TRUE(resolution->start().is_ok());
  ASSERT_TRUE(resolution->open_drafter(nullptr).is_ok());
  EXPECT_TRUE(resolution->drafter());
  EXPECT_GE(log.find("create over: beta=4 alpha=9"), 0) << log.text();
  resolution->close_drafter();
  EXPECT_FALSE(resolution->drafter());
  const auto at = [&](const char* line) {
    EXPECT_GE(log.find(line), 0) << line;
    return log.find(line);
  };
  EXPECT_LT(at("start alpha"), at("create over"));
  EXPECT_LT(at("start beta"), at("create over"));
  EXPECT_LT(at("stop over"), at("stop alpha"));
  EXPECT_LT(at("destroy over"), at("destroy beta"));
  EXPECT_EQ(log.count(": create "), log.count(": destroy ") + 6) << "the stack's are still there";
}

TEST_F(Drafters, CompositionsMayStandOverCompositions) {
  request.drafter_over = {{"over", {"phantom"}}, {"phantom", {"alpha"}}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_TRUE(slot("drafter:phantom")->chosen);
  EXPECT_TRUE(slot("drafter:alpha")->chosen);
}

TEST_F(Drafters, AnInnerOneThatCannotBeOpenedIsLeftOut) {
  ASSERT_TRUE(resolve().is_ok());
  const ScopedEnv fails("FIXTURE:alpha:create", "fail");
  ASSERT_TRUE(resolution->open_drafter(nullptr).is_ok());
  EXPECT_GE(log.find("create over: beta=4"), 0) << log.text();
  EXPECT_EQ(log.count("the composed drafter goes without 'alpha'"), 1);
  report = resolution->report();
  EXPECT_TRUE(contains(warnings(), "the composed drafter goes without 'alpha': "));
  EXPECT_FALSE(slot("drafter:alpha")->chosen);
  EXPECT_TRUE(slot("drafter")->chosen);
}

TEST_F(Drafters, ATrialThatIsKeptIsTheDrafterAndItsWordsGoOutOnce) {
  ASSERT_TRUE(resolve().is_ok());
  const turbo_host_program program{};
  ASSERT_TRUE(resolution->try_drafter(&program).is_ok());
  EXPECT_EQ(log.count("create over"), 0) << "held back";
  EXPECT_FALSE(resolution->drafter_asked_for_program());
  resolution->keep_drafter();
  EXPECT_EQ(log.count("create over"), 1);
  const void* self = resolution->drafter().self;
  ASSERT_TRUE(resolution->open_drafter(nullptr).is_ok());
  EXPECT_EQ(resolution->drafter().self, self);
  resolution->close_drafter();
  EXPECT_EQ(log.count("create over"), 1);
  EXPECT_EQ(log.count("destroy over"), 1) << "what comes later goes straight out";
}

TEST_F(Drafters, ATrialThatIsDroppedLeavesNoTrace) {
  ASSERT_TRUE(resolve().is_ok());
  const std::string before = resolution->explain_text();
  {
    const ScopedEnv fails("FIXTURE:alpha:create", "fail");
    ASSERT_TRUE(resolution->try_drafter(nullptr).is_ok());
    resolution->drop_drafter(false);
  }
  EXPECT_FALSE(resolution->drafter());
  EXPECT_EQ(resolution->explain_text(), before);
  EXPECT_EQ(log.count("create over") + log.count("goes without"), 0) << log.text();
  ASSERT_TRUE(resolution->open_drafter(nullptr).is_ok());
  EXPECT_EQ(log.count("create over: beta=4 alpha=4"), 1) << log.text();
}

TEST_F(Drafters, ATrialTellsItsWarningsInTheReport) {
  ASSERT_TRUE(resolve().is_ok());
  const ScopedEnv fails("FIXTURE:alpha:create", "fail");
  ASSERT_TRUE(resolution->try_drafter(nullptr).is_ok());
  resolution->drop_drafter(true);
  report = resolution->report();
  EXPECT_EQ(std::count_if(report.warnings.begin(), report.warnings.end(), [](const std::string& warning) { return contains(warning, "goes without 'alpha'"); }), 1);
  EXPECT_FALSE(slot("drafter:alpha")->chosen);
}

TEST_F(Drafters, WithNoneOfThemThereIsNoDrafterAndTheReasonIsTold) {
  request.drafter_over = {{"over", {"alpha"}}};
  ASSERT_TRUE(resolve().is_ok());
  const ScopedEnv fails("FIXTURE:alpha:create", "fail");
  const Status status = resolution->open_drafter(nullptr);
  EXPECT_TRUE(contains(status.message(), "told to fail"));
  EXPECT_FALSE(resolution->drafter());
  report = resolution->report();
  EXPECT_FALSE(slot("drafter")->chosen);
  EXPECT_TRUE(contains(warnings(), "no drafter: "));
}

TEST_F(Drafters, AnOuterOneThatFailsTakesTheInnerOnesDown) {
  request.drafter_over = {};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_TRUE(contains(resolution->open_drafter(nullptr).message(), "there is nothing to work over"));
  request.drafter = "alpha";
  request.drafter_over = {{"alpha", {"beta"}}};  // the fixture refuses that
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_FALSE(resolution->open_drafter(nullptr).is_ok());
  EXPECT_EQ(log.count("create beta"), 1);
  EXPECT_EQ(log.count("destroy beta"), 1);
}

TEST_F(Drafters, AnInnerOneThatIsUnusableHereIsAWarning) {
  const ScopedEnv none("FIXTURE:test.cpu:drafter:score", "0");
  request.drafter_over = {{"over", {"phantom", "alpha"}}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_TRUE(contains(warnings(), "the composed drafter goes without 'phantom': probe says unusable here"));
  EXPECT_TRUE(resolution->open_drafter(nullptr).is_ok());
  EXPECT_GE(log.find("create over: alpha=4"), 0);
  request.drafter_over = {{"over", {"phantom"}}};
  ASSERT_TRUE(resolve().is_ok());
  EXPECT_TRUE(contains(warnings(), "none of the drafters that it works over can be used"));
  EXPECT_FALSE(slot("drafter")->chosen);
  EXPECT_TRUE(resolution->open_drafter(nullptr).is_ok());
  EXPECT_FALSE(resolution->drafter());
}

TEST_F(Drafters, MistakesOfTheUserAreErrors) {
  const auto said = [&](std::map<std::string, std::vector<std::string>> over) {
    request.drafter_over = std::move(over);
    const Status status = resolve();
    EXPECT_EQ(status.code(), Code::invalid_argument);
    return status.message() + " | " + status.hint();
  };
  EXPECT_TRUE(contains(said({{"over", {"alpa"}}}), "drafter 'over' over others: drafter 'alpa': no plugin provides it"));
  EXPECT_TRUE(contains(said({{"over", {"alpa"}}}), "did you mean 'alpha'?"));
  EXPECT_TRUE(contains(said({{"over", {"over"}}}), "drafter 'over': it cannot work over itself"));
  EXPECT_TRUE(contains(said({{"over", {"alpha", "alpha"}}}), "drafter 'alpha': it is in the composition twice"));
  EXPECT_TRUE(contains(said({{"over", {"alpha"}}, {"alpha", {"beta"}}, {"beta", {"over"}}}), "'over': it is in the composition twice"));
  request.options["drafter:alpha"] = {{"dept", "9"}};
  EXPECT_TRUE(contains(said({{"over", {"alpha"}}}), "unknown option 'dept'"));
  request.options["drafter:alpha"] = {{"depth", "99"}};
  EXPECT_TRUE(contains(said({{"over", {"alpha"}}}), "expected 1 to 64"));
  request.options = {{"drafter:gamma", {{"depth", "9"}}}};
  EXPECT_TRUE(contains(said({{"over", {"alpha"}}}), "options for 'drafter:gamma': there is no such slot"));
  // What is said to the outer one is not said to the inner ones.
  request.options = {{"drafter", {{"depth", "9"}}}};
  EXPECT_TRUE(contains(said({{"over", {"alpha"}}}), "unknown option 'depth'"));
}

// A worker of the outer drafter that does not end may be inside an inner one: that one must stay.
TEST_F(Drafters, AnOuterOneThatDoesNotEndKeepsItsInnerOnes) {
  const ScopedEnv slow("FIXTURE:over:worker", "300");
  services.worker_join_limit = std::chrono::milliseconds(20);
  ASSERT_TRUE(resolve().is_ok());
  ASSERT_TRUE(resolution->open_drafter(nullptr).is_ok());
  resolution->close_drafter();
  resolution.reset();
  EXPECT_EQ(log.count("stop alpha"), 1);
  EXPECT_EQ(log.count("destroy over"), 0);
  EXPECT_EQ(log.count("destroy alpha"), 0);
  EXPECT_EQ(log.count("destroy beta"), 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));  // the thread uses the log no longer
}

}  // namespace
}  // namespace turbo::loader
