// Drafters through the ABI: the template, a tree drafter written in C, and one that runs its own program.
#include "plugins.h"

#include <gtest/gtest.h>
#include <turbo/drafter.hpp>
#include <turbo/fake/pack.hpp>

using namespace turbo;

namespace {

turbo_observation observation(const std::vector<int32_t>& tokens, uint64_t position) {
  turbo_observation seen{};
  seen.struct_size = sizeof seen;
  seen.n_tokens = static_cast<uint32_t>(tokens.size());
  seen.tokens = tokens.data();
  seen.position = position;
  return seen;
}

turbo_view rows(std::vector<float>& values, uint64_t width) {
  turbo_view view{};
  view.struct_size = sizeof view;
  view.type = TURBO_TYPE_F32;
  view.data = values.data();
  view.bytes = values.size() * sizeof(float);
  view.rank = 2;
  view.device = -1;
  view.shape[0] = values.size() / width;
  view.shape[1] = width;
  view.stride[0] = width * sizeof(float);
  view.stride[1] = sizeof(float);
  return view;
}

}  // namespace

TEST(HelloDrafter, RepeatsTheLastToken) {
  fake::Host host;
  host.options["repeat"] = 3;
  fake::Component component(open_template("drafter"), "drafter", "hello", TURBO_TIER_CPU, host);
  const auto* table = component.interface<turbo_drafter>(TURBO_DRAFTER_1);
  ASSERT_NE(table, nullptr);
  void* self = component.self();
  EXPECT_EQ(table->begin, nullptr);
  EXPECT_EQ(table->save, nullptr);

  turbo_drafter_needs needs{};
  needs.struct_size = sizeof needs;
  ASSERT_EQ(table->needs(self, &needs, nullptr), TURBO_OK);
  EXPECT_EQ(needs.max_slots, 4u);
  EXPECT_EQ(needs.struct_size, sizeof needs);

  ASSERT_EQ(table->open(self, 5, nullptr), TURBO_OK);
  Proposal proposal(5, 8);
  ASSERT_EQ(table->poll(self, &proposal.raw, 1, nullptr), TURBO_OK);
  EXPECT_EQ(proposal.raw.n, 0u) << "nothing seen: no draft";
  const std::vector<int32_t> tokens = {1, 2, 42};
  const auto seen = observation(tokens, 0);
  ASSERT_EQ(table->observe(self, 5, &seen, nullptr), TURBO_OK);
  ASSERT_EQ(table->poll(self, &proposal.raw, 1, nullptr), TURBO_OK);
  EXPECT_EQ(proposal.drafted(), (std::vector<int32_t>{42, 42, 42}));
  EXPECT_EQ(proposal.drafted_parents(), (std::vector<int32_t>{-1, 0, 1}));
  Proposal narrow(5, 3);
  ASSERT_EQ(table->poll(self, &narrow.raw, 1, nullptr), TURBO_OK);
  EXPECT_EQ(narrow.raw.n, 2u);
  EXPECT_TRUE(narrow.untouched_past_capacity());
  table->close(self, 5);
  ASSERT_EQ(table->poll(self, &proposal.raw, 1, nullptr), TURBO_OK);
  EXPECT_EQ(proposal.raw.n, 0u);
}

TEST(HelloDrafter, RefusesBrokenCalls) {
  fake::Host host;
  fake::Component component(open_template("drafter"), "drafter", "hello", TURBO_TIER_CPU, host);
  const auto* table = component.interface<turbo_drafter>(TURBO_DRAFTER_1);
  Error error;
  EXPECT_EQ(table->observe(component.self(), 0, nullptr, &error), TURBO_INVALID_ARGUMENT);
  EXPECT_NE(std::string(error.message), "");
  EXPECT_EQ(table->poll(component.self(), nullptr, 1, &error), TURBO_INVALID_ARGUMENT);
  Proposal proposal(0, 4);
  proposal.raw.struct_size = 8;
  EXPECT_EQ(table->poll(component.self(), &proposal.raw, 1, nullptr), TURBO_INVALID_ARGUMENT);
  turbo_drafter_needs needs{};
  EXPECT_EQ(table->needs(component.self(), &needs, nullptr), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(table->needs(nullptr, nullptr, nullptr), TURBO_INVALID_ARGUMENT);
}

TEST(TreeDrafter, ProposesATreeFromTokensAndTapsOnTheSecondPoll) {
  fake::Host host;
  fake::Component component(open_fixture("abi_tree_drafter"), "drafter", "abi_tree", TURBO_TIER_CPU, host);
  const auto* table = component.interface<turbo_drafter>(TURBO_DRAFTER_1);
  void* self = component.self();
  turbo_drafter_needs needs{};
  needs.struct_size = sizeof needs;
  ASSERT_EQ(table->needs(self, &needs, nullptr), TURBO_OK);
  EXPECT_EQ(needs.n_taps, 2u);
  EXPECT_EQ(needs.tap_layers[1], 3);
  ASSERT_EQ(table->open(self, 2, nullptr), TURBO_OK);
  Error error;
  EXPECT_EQ(table->open(self, 8, &error), TURBO_RESOURCE_EXHAUSTED);
  EXPECT_STREQ(error.message, "sequence: only 8 are kept");

  const std::vector<int32_t> prompt = {10, 11};
  auto seen = observation(prompt, 0);
  ASSERT_EQ(table->observe(self, 2, &seen, nullptr), TURBO_OK);
  const std::vector<int32_t> step = {12, 13};
  std::vector<float> low(8), high = {0, 0, 500, 0, 7, 0, 0, 0};
  const turbo_view taps[] = {rows(low, 2), rows(high, 2)};
  const int32_t tap_rows[] = {3, 2, 1};  // positions 0, 1, 2; the newest token has none yet
  seen = observation(step, 2);
  seen.n_accepted = 1;
  seen.n_taps = 2;
  seen.tap_position = 0;
  seen.n_tap_rows = 3;
  seen.taps = taps;
  seen.tap_rows = tap_rows;
  ASSERT_EQ(table->observe(self, 2, &seen, nullptr), TURBO_OK);
  EXPECT_EQ(table->observe(self, 2, &seen, &error), TURBO_INVALID_ARGUMENT) << "the same tokens twice";

  Proposal a(2, 8), b(2, 2);
  turbo_proposal both[] = {a.raw, b.raw};
  ASSERT_EQ(table->begin(self, both, 2, nullptr), TURBO_OK);
  ASSERT_EQ(table->poll(self, both, 2, nullptr), TURBO_PENDING);
  ASSERT_EQ(table->poll(self, both, 2, nullptr), TURBO_OK);
  a.raw = both[0];
  b.raw = both[1];
  EXPECT_EQ(a.drafted(), (std::vector<int32_t>{14, 15, 500}));
  EXPECT_EQ(a.drafted_parents(), (std::vector<int32_t>{-1, -1, 0}));
  EXPECT_EQ(a.probabilities[2], 0.5f);
  EXPECT_EQ(b.drafted(), (std::vector<int32_t>{14}));
  EXPECT_TRUE(b.untouched_past_capacity());

  uint64_t bytes = 0;
  EXPECT_EQ(table->save(self, 2, nullptr, &bytes, nullptr), TURBO_RESOURCE_EXHAUSTED);
  std::vector<uint8_t> state(bytes);
  ASSERT_EQ(table->save(self, 2, state.data(), &bytes, nullptr), TURBO_OK);
  ASSERT_EQ(table->open(self, 3, nullptr), TURBO_OK);
  ASSERT_EQ(table->restore(self, 3, state.data(), bytes, nullptr), TURBO_OK);
  EXPECT_EQ(table->restore(self, 3, state.data(), bytes - 1, nullptr), TURBO_CORRUPT_INPUT);
  Proposal c(3, 8);
  ASSERT_EQ(table->poll(self, &c.raw, 1, nullptr), TURBO_OK);
  EXPECT_EQ(c.drafted(), a.drafted());
}

TEST(TreeDrafter, ProbeSaysWhyNot) {
  const auto query = open_fixture("abi_tree_drafter");
  EXPECT_EQ(query(TURBO_ABI_MAJOR + 1, 0), nullptr);
  const turbo_component* component = fake::find_component(*query(TURBO_ABI_MAJOR, 0), "drafter", "abi_tree", TURBO_TIER_CPU);
  ASSERT_NE(component, nullptr);
  fake::Host host;
  host.facts.n_layers = 2;
  turbo_probe_facts facts = {sizeof facts, TURBO_TIER_CPU, &host.facts, nullptr};
  turbo_probe_result result{};
  result.struct_size = sizeof result;
  ASSERT_EQ(component->probe(host.raw(), &facts, &result, nullptr), TURBO_OK);
  EXPECT_EQ(result.score, 0);
  EXPECT_STREQ(result.reason, "wants a model of at least 4 layers");
  facts.model = nullptr;
  ASSERT_EQ(component->probe(host.raw(), &facts, &result, nullptr), TURBO_OK);
  EXPECT_GT(result.score, 0);
}

class ProgramDrafterTest : public testing::Test {
 protected:
  ProgramDrafterTest() {
    host.facts.n_embd = 2;
    host.facts.vocab_size = 10;
    host.pack = pack.table();
    host.pack_instance = &pack;
    host.target_weights["token_embd.weight"] = weight("token_embd.weight");
    host.target_weights["output.weight"] = weight("output.weight");
    host.block_tables[0] = {{7, 3}, {1, 0}};
  }
  ~ProgramDrafterTest() override {
    for (auto& [name, handle] : host.target_weights) pack.weight_free(const_cast<turbo_weight*>(handle));
  }
  turbo_weight* weight(const char* name) {
    turbo_weight_source source{};
    source.name = name;
    return pack.weight_load(source);
  }
  fake::Pack pack;
  fake::Host host;
};

TEST_F(ProgramDrafterTest, CompilesAtStartAndRunsOncePerDraftedToken) {
  std::vector<std::vector<int32_t>> block_tables;
  pack.on_run = [&](fake::Pack::Plan& plan, const turbo_step_table& table) {
    block_tables.push_back({table.block_table[0], table.block_table[1], table.open_table[0], table.block_table[2]});
    EXPECT_EQ(plan.buffers[0][0], 0.5f) << "the tap went in";
    auto& logits = plan.buffers[5];
    std::fill(logits.begin(), logits.end(), 0.0f);
    logits[static_cast<size_t>(table.token[0] + 3) % 10] = 1;  // the "model": token + 3
  };
  {
    host.options["depth"] = 4;
    fake::Component component(open_fixture("abi_program_drafter"), "drafter", "abi_program", TURBO_TIER_CPU, host);
    const auto* table = component.interface<turbo_drafter>(TURBO_DRAFTER_1);
    EXPECT_EQ(pack.compiled, (std::vector<std::string>{"abi_program.step"}));
    ASSERT_EQ(host.drafter_pools.size(), 1u);
    EXPECT_EQ(host.drafter_pools[0].n_layers, 1u);
    std::vector<float> state = {0.25f, 0.25f, 0.5f, 0.75f};
    const turbo_view tap = rows(state, 2);
    const int32_t tap_rows[] = {0, 1};
    const std::vector<int32_t> tokens = {8, 4};
    auto seen = observation(tokens, 20);
    seen.n_taps = 1;
    seen.tap_position = 20;
    seen.n_tap_rows = 2;
    seen.taps = &tap;
    seen.tap_rows = tap_rows;
    ASSERT_EQ(table->observe(component.self(), 0, &seen, nullptr), TURBO_OK);
    Proposal proposal(0, 8);
    Error error;
    ASSERT_EQ(table->poll(component.self(), &proposal.raw, 1, &error), TURBO_OK) << error.message;
    EXPECT_EQ(proposal.drafted(), (std::vector<int32_t>{7, 0, 3, 6}));
    EXPECT_EQ(proposal.drafted_parents(), (std::vector<int32_t>{-1, 0, 1, 2}));
    ASSERT_EQ(pack.runs.size(), 4u);
    EXPECT_EQ(pack.runs[0].tokens, (std::vector<int32_t>{4}));
    EXPECT_EQ(pack.runs[3].positions, (std::vector<int32_t>{24}));
    EXPECT_EQ(block_tables[0], (std::vector<int32_t>{7, 3, 1, -1}));
    Proposal other(9, 8);
    EXPECT_EQ(table->poll(component.self(), &other.raw, 1, &error), TURBO_NOT_FOUND) << "a sequence without blocks";
  }
  EXPECT_EQ(pack.live_plans, 0);
  EXPECT_EQ(pack.live_tables, 0);
  EXPECT_EQ(pack.live_pools, 0);
}

TEST_F(ProgramDrafterTest, AnUnsupportedOpIsACleanRefusal) {
  pack.unsupported_ops = {TURBO_OP_ATTEND};
  try {
    fake::Component component(open_fixture("abi_program_drafter"), "drafter", "abi_program", TURBO_TIER_CPU, host);
    FAIL() << "started without attention";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "program abi_program.step: op 7 is not supported");
  }
  EXPECT_EQ(pack.live_pools, 0);
  EXPECT_EQ(pack.live_plans, 0);
}

TEST_F(ProgramDrafterTest, WithoutTheServiceItSaysSo) {
  host.absent.insert(TURBO_HOST_PROGRAM_DRAFT);
  EXPECT_THROW(fake::Component(open_fixture("abi_program_drafter"), "drafter", "abi_program", TURBO_TIER_CPU, host), std::runtime_error);
}

TEST(ObservationTest, TapsHaveTheirOwnRange) {
  std::vector<float> values = {1, 2, 3, 4};
  const turbo_view view = rows(values, 2);
  const int32_t tap_rows[] = {1, 0, 9};
  const std::vector<int32_t> tokens = {5, 6, 7, 8};
  auto raw = observation(tokens, 30);
  raw.n_taps = 1;
  raw.taps = &view;
  raw.tap_rows = tap_rows;
  raw.tap_position = 29;
  raw.n_tap_rows = 3;
  const Observation seen(raw);
  ASSERT_NE(seen.tap(0, 0), nullptr);
  EXPECT_EQ(seen.tap(0, 0)[0], 3);
  EXPECT_EQ(seen.tap(0, 1)[1], 2);
  EXPECT_EQ(seen.tap(0, 2), nullptr) << "a row past the view";
  EXPECT_EQ(seen.tap(0, 3), nullptr) << "more tokens than hidden states";
  EXPECT_EQ(seen.tap(1, 0), nullptr);
}

TEST(DraftTreeTest, KeepsTheTreeLegal) {
  Proposal proposal(1, 4);
  DraftTree draft(proposal.raw);
  EXPECT_EQ(draft.add(5, DraftTree::kRoot), 0);
  EXPECT_EQ(draft.add(5, DraftTree::kRoot), 0) << "siblings are distinct";
  EXPECT_EQ(draft.add(5, 0), 1);
  EXPECT_THROW(draft.add(6, 2), Failure);
  EXPECT_THROW(draft.add(6, -2), Failure);
  EXPECT_EQ(draft.add(6, 0), 2);
  EXPECT_FALSE(draft.add(7, 0).has_value());
  EXPECT_TRUE(draft.full());
  EXPECT_TRUE(proposal.untouched_past_capacity());
}

namespace {

// Saves, and fails in every way a plugin can.
class Thrower : public Drafter<Thrower> {
 public:
  explicit Thrower(const Host&) {}
  void open(uint32_t sequence) override {
    if (sequence == 1) throw Failure(TURBO_CANCELLED, "thing: reason", "do this");
    if (sequence == 2) throw std::bad_alloc();
    if (sequence == 3) throw std::runtime_error("plain");
    if (sequence == 4) throw 4;
  }
  std::vector<uint8_t> save(uint32_t) override { return {1, 2, 3}; }
  void restore(uint32_t, std::span<const uint8_t> bytes) override { restored.assign(bytes.begin(), bytes.end()); }
  std::vector<uint8_t> restored;
};

}  // namespace

TEST(DrafterWrapper, TurnsEveryExceptionIntoAStatus) {
  fake::Host host;
  Thrower thrower{Host(host.raw())};
  const auto* table = static_cast<const turbo_drafter*>(Thrower::interface(TURBO_DRAFTER_1));
  Error error;
  EXPECT_EQ(table->open(&thrower, 0, &error), TURBO_OK);
  EXPECT_EQ(table->open(&thrower, 1, &error), TURBO_CANCELLED);
  EXPECT_STREQ(error.message, "thing: reason");
  EXPECT_STREQ(error.hint, "do this");
  EXPECT_EQ(error.code, TURBO_CANCELLED);
  EXPECT_EQ(table->open(&thrower, 2, &error), TURBO_RESOURCE_EXHAUSTED);
  EXPECT_EQ(table->open(&thrower, 3, &error), TURBO_INTERNAL);
  EXPECT_STREQ(error.message, "plain");
  EXPECT_EQ(table->open(&thrower, 4, nullptr), TURBO_INTERNAL);
  uint64_t bytes = 2;
  uint8_t state[3];
  EXPECT_EQ(table->save(&thrower, 0, state, &bytes, &error), TURBO_RESOURCE_EXHAUSTED);
  EXPECT_EQ(bytes, 3u);
  EXPECT_EQ(table->save(&thrower, 0, state, &bytes, &error), TURBO_OK);
  EXPECT_EQ(table->restore(&thrower, 0, state, 3, &error), TURBO_OK);
  EXPECT_EQ(thrower.restored, (std::vector<uint8_t>{1, 2, 3}));
}

TEST(DrafterWrapper, ReadsArraysByTheHostsStride) {
  // A host compiled against a later minor has longer proposals.
  struct Later { turbo_proposal now; uint64_t more[3]; };
  fake::Host host;
  fake::Component component(open_template("drafter"), "drafter", "hello", TURBO_TIER_CPU, host);
  const auto* table = component.interface<turbo_drafter>(TURBO_DRAFTER_1);
  const std::vector<int32_t> one = {1}, two = {2};
  const auto first = observation(one, 0), second = observation(two, 0);
  ASSERT_EQ(table->observe(component.self(), 0, &first, nullptr), TURBO_OK);
  ASSERT_EQ(table->observe(component.self(), 1, &second, nullptr), TURBO_OK);
  Proposal a(0, 3), b(1, 3);
  Later both[2] = {{a.raw, {}}, {b.raw, {}}};
  both[0].now.struct_size = both[1].now.struct_size = sizeof(Later);
  ASSERT_EQ(table->poll(component.self(), &both[0].now, 2, nullptr), TURBO_OK);
  EXPECT_EQ(both[1].now.n, 2u);
  EXPECT_EQ(b.tokens[0], 2);
}

TEST(DrafterWrapper, WritesNoMoreThanAnOlderHostHasRoomFor) {
  turbo_step_caps guard[2] = {};
  guard[0].struct_size = 8;  // pretend: a version with one member
  guard[1].rows = 77;
  turbo::detail::fill_out(&guard[0], [](turbo_step_caps& out) { out.rows = 5, out.sequences = 6; });
  EXPECT_EQ(guard[0].struct_size, 8u);
  EXPECT_EQ(guard[0].rows, 5u);
  EXPECT_EQ(guard[0].sequences, 0u);
  EXPECT_EQ(guard[1].rows, 77u);
}
