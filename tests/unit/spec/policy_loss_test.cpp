// What drafting may lose against plain decoding, on scripted machines, texts and drafters. Everything is drawn from fixed
// seeds and no clock is read, so the figures are the same everywhere.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "spec/draft_cost.h"
#include "spec/draft_gate.h"
#include "spec/draft_length.h"
#include "spec/step_cost.h"

namespace turbo::spec {
namespace {

// What the policy does not know.
struct World {
  std::vector<double> price{0, 1.0, 1.5, 1.85, 2.2, 2.6, 3.0, 3.4, 3.8, 4.2, 4.6, 5.0, 5.4};  // of a step by its rows
  double noise = 0.05;                           // relative, of every step
  double hiccups = 0;                            // share of steps that take three times as long
  double hold = 0.3;                             // share of drafts that hold at a depth
  double draft_seconds = 0;                      // of one call
  uint32_t nodes = 11;                           // most that the drafter offers
  double offers = 1;                             // share of calls that it answers at all
};

struct Outcome {
  double plain = 0, drafting = 0;
  double speed() const { return plain / drafting; }
};

// One request after the other, as the engine plays them.
class Player {
 public:
  explicit Player(const std::vector<double>& believed, uint32_t seed = 1) : rng_(seed) {
    std::vector<RowCost> costs;
    for (const uint32_t rows : {1u, 2u, 3u, 4u, 6u, 8u, 12u}) costs.push_back({rows, believed[rows], believed[rows]});
    cost_ = StepCost(costs);
  }

  Outcome request(const World& world, uint32_t tokens) {
    Outcome outcome;
    DraftLength length = typical_.fresh();
    for (uint32_t done = 0; done < tokens;) {
      const uint32_t slots = gate_.open() ? length.choose(std::min(12u, tokens - done), cost_, 0, 0, draft_cost_) : 1;
      uint32_t nodes = 0;
      double draft_seconds = 0;
      if (slots > 1) {
        draft_seconds = world.draft_seconds;
        draft_cost_.record(slots - 1, draft_seconds);
        if (chance(world.offers)) nodes = std::min(slots - 1, world.nodes);
      }
      uint32_t held = 0;
      while (held < nodes && chance(world.hold)) ++held;
      if (nodes > 0) {
        length.record(nodes, held, nodes);
        typical_.record(nodes, held, nodes);
      }
      const double took = step(world, nodes + 1);
      cost_.record(nodes + 1, took);
      gate_.record({1, nodes, held + 1.0, draft_seconds}, cost_);
      outcome.drafting += took + draft_seconds;
      done += held + 1;
      outcome.plain += (held + 1) * world.price[1] * mean(world);
    }
    return outcome;
  }

  Outcome requests(const World& world, uint32_t n, uint32_t tokens) {
    Outcome sum;
    for (uint32_t i = 0; i < n; ++i) {
      const Outcome one = request(world, tokens);
      sum.plain += one.plain;
      sum.drafting += one.drafting;
    }
    return sum;
  }

 private:
  bool chance(double share) { return std::uniform_real_distribution<>(0, 1)(rng_) < share; }
  static double mean(const World& world) { return std::exp(world.noise * world.noise / 2) * (1 + 2 * world.hiccups); }
  double step(const World& world, uint32_t rows) {
    return world.price[rows] * std::exp(std::normal_distribution<>(0, world.noise)(rng_)) * (chance(world.hiccups) ? 3 : 1);
  }

  std::mt19937 rng_;
  StepCost cost_;
  DraftCost draft_cost_;
  DraftGate gate_;
  DraftLength typical_;
};

constexpr double kNever = 0.98;  // of plain decoding
constexpr uint32_t kRequests = 32, kTokens = 128;

// Of some seeds together: what is bounded is the policy, not the luck of one text.
double speed(const World& world, const std::vector<double>& believed) {
  Outcome sum;
  for (uint32_t seed = 1; seed <= 8; ++seed) {
    Player player(believed, seed);
    const Outcome one = player.requests(world, kRequests, kTokens);
    sum.plain += one.plain;
    sum.drafting += one.drafting;
  }
  return sum.speed();
}
double speed(const World& world) { return speed(world, world.price); }

}  // namespace

TEST(PolicyLoss, AnyAcceptance) {
  for (const double noise : {0.0, 0.1, 0.3})
    for (const double hiccups : {0.0, 0.05})
      for (int hold = 0; hold <= 100; hold += 10) {
        World world;
        world.noise = noise;
        world.hiccups = hiccups;
        world.hold = hold / 100.0;
        EXPECT_GE(speed(world), kNever) << "noise " << noise << " hiccups " << hiccups << " hold " << hold << "%";
      }
}

TEST(PolicyLoss, DraftersThatSeldomOrBarelyOffer) {
  for (const uint32_t nodes : {1u, 2u, 4u})
    for (const double offers : {0.1, 0.5, 1.0})
      for (int hold = 0; hold <= 100; hold += 10) {
        World world;
        world.nodes = nodes;
        world.offers = offers;
        world.hold = hold / 100.0;
        EXPECT_GE(speed(world), kNever) << nodes << " nodes, offers " << offers << ", hold " << hold << "%";
      }
}

TEST(PolicyLoss, TimeInTheDrafter) {
  for (const double seconds : {0.02, 0.2, 1.0})
    for (const double offers : {0.0, 0.3, 1.0})
      for (int hold = 0; hold <= 80; hold += 20) {
        World world;
        world.draft_seconds = seconds;
        world.offers = offers;
        world.hold = hold / 100.0;
        EXPECT_GE(speed(world), kNever) << "draft " << seconds << ", offers " << offers << ", hold " << hold << "%";
      }
}

// The price was measured while another program ran, or before it ran.
TEST(PolicyLoss, PricesThatWereMeasuredWrongly) {
  const World truth;
  std::vector<double> cheap = truth.price, dear_first = truth.price, dear = truth.price;
  for (size_t rows = 2; rows < cheap.size(); ++rows) cheap[rows] = 1 + (cheap[rows] - 1) / 8;
  dear_first[1] *= 2;
  for (size_t rows = 2; rows < dear.size(); ++rows) dear[rows] *= 2;
  for (const auto* believed : {&cheap, &dear_first, &dear})
    for (const double noise : {0.02, 0.2})
      for (int hold = 0; hold <= 100; hold += 10) {
        World world;
        world.noise = noise;
        world.hold = hold / 100.0;
        EXPECT_GE(speed(world, *believed), kNever)
            << (believed == &cheap ? "rows seem cheap" : believed == &dear ? "rows seem dear" : "one row seems dear") << ", noise " << noise
            << ", hold " << hold << "%";
      }
}

// Bad texts, each after a good one that has filled the account; only the bad ones are counted, both together win. A bad text
// may lose what is in the account, kMost tokens, and kShare of its own tokens. One text alone may lose a step more: the
// account is closed when it has been overdrawn, by the widest step at most. A text that ends before the account is empty
// loses what it takes to learn that drafts no longer hold; that is measured, and a policy that learns slower fails here.
TEST(PolicyLoss, TextsThatChange) {
  World good, bad;
  good.hold = 0.9;
  bad.hold = 0.1;
  const double step = bad.price.back() * (1 + 3 * bad.noise) - 1;  // what a draft of which nothing holds costs
  for (const auto& [every, learning] : std::vector<std::pair<uint32_t, double>>{{32, 3.5}, {128, 6.5}, {512, DraftGate::kMost}}) {
    Outcome sum;
    double texts = 0;
    for (uint32_t seed = 1; seed <= 8; ++seed) {
      Player player(good.price, seed);
      for (uint32_t i = 0; i < 4096 / every; ++i) {
        const Outcome one = player.request(i % 2 ? bad : good, every);
        if (i % 2 == 0) continue;
        sum.plain += one.plain;
        sum.drafting += one.drafting;
        EXPECT_LE(one.drafting, (1 + DraftGate::kShare) * one.plain + DraftGate::kMost + step) << "text " << i << ", a change every " << every << " tokens";
        texts += 1;
      }
    }
    // A token costs 1 to decode plainly.
    EXPECT_LE(sum.drafting, (1 + DraftGate::kShare) * sum.plain + texts * learning) << "a change every " << every << " tokens";
  }
}

TEST(PolicyLoss, MachinesThatChange) {
  World quiet, busy;
  for (size_t rows = 1; rows < busy.price.size(); ++rows) busy.price[rows] *= 1.5 + 0.15 * static_cast<double>(rows);
  for (const double hold : {0.2, 0.4, 0.6, 0.8}) {
    Outcome sum;
    quiet.hold = busy.hold = hold;
    for (uint32_t seed = 1; seed <= 8; ++seed) {
      Player player(quiet.price, seed);
      for (uint32_t i = 0; i < 32; ++i) {
        const Outcome one = player.request(i / 2 % 2 ? busy : quiet, 128);
        sum.plain += one.plain;
        sum.drafting += one.drafting;
      }
    }
    EXPECT_GE(sum.speed(), kNever) << "hold " << hold;
  }
}

// The account may not cost what drafts are for.
TEST(PolicyLoss, GoodDraftsKeepTheirGain) {
  World world;
  for (const auto& [hold, gain] : std::vector<std::pair<double, double>>{{0.7, 1.09}, {0.8, 1.28}, {0.9, 1.53}, {1.0, 1.8}}) {
    world.hold = hold;
    EXPECT_GE(speed(world), gain) << "hold " << hold;
  }
  for (size_t rows = 2; rows < world.price.size(); ++rows) world.price[rows] = 1 + 0.03 * static_cast<double>(rows - 1);
  for (const auto& [hold, gain] : std::vector<std::pair<double, double>>{{0.3, 1.26}, {0.6, 2.0}, {0.9, 5.0}}) {
    world.hold = hold;
    EXPECT_GE(speed(world), gain) << "cheap rows, hold " << hold;
  }
}

}  // namespace turbo::spec
