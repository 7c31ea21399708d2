// What a KV pool takes: packed blocks, and the open ones of every running sequence within the same budget.
#include "engine/pool_size.h"

#include <gtest/gtest.h>

#include "engine/kv_plan.h"
#include "kv/cache.h"

namespace turbo::engine {
namespace {

constexpr uint64_t kPacked = 1000, kOpen = 4000;
constexpr turbo_kv_bytes kTwoForms{sizeof(turbo_kv_bytes), 0, kPacked, kOpen, 4, 0};  // 2 and twice one block of sinks: 4 open blocks a sequence
constexpr turbo_kv_bytes kOneForm{sizeof(turbo_kv_bytes), 1, kPacked, 0, 0, 0};

profile::Profile with(int max_running, uint64_t pool_bytes = 0, uint32_t pool_tokens = 0) {
  profile::Profile profile;
  profile.engine.max_running = max_running;
  profile.kv.pool_bytes = pool_bytes;
  profile.kv.pool_tokens = pool_tokens;
  return profile;
}

TEST(PoolSize, OpenBlocksAreInTheBudget) {
  for (const uint64_t budget : {200'000ull, 150'000ull, 131'000ull}) {
    const auto size = choose_pool(with(8, budget), 640, kTwoForms, {1'000'000, 1'000'000});
    ASSERT_TRUE(size) << size.status().message();
    EXPECT_LE(size->bytes, budget);
    EXPECT_EQ(size->bytes, size->n_blocks * kPacked + size->open_bytes);
    EXPECT_EQ(size->open_bytes, size->max_running * 4 * kOpen);
    EXPECT_EQ(size->open_bytes, kv::KvCache::open_blocks(kTwoForms, size->max_running) * kOpen);
  }
  EXPECT_EQ(choose_pool(with(8, 200'000), 640, kTwoForms, {1'000'000, 1'000'000})->n_blocks, 72u);
  const auto automatic = choose_pool(with(8), 640, kTwoForms, {400'000, 1'000'000});
  EXPECT_EQ(automatic->n_blocks, 72u) << "half of what is free";
}

TEST(PoolSize, CodecsOfOneFormTakeWhatTheyTook) {
  const auto size = choose_pool(with(8, 20'000), 640, kOneForm, {1'000'000, 1'000'000});
  EXPECT_EQ(size->n_blocks, 20u);
  EXPECT_EQ(size->max_running, 8u);
  EXPECT_EQ(size->open_bytes, 0u);
  EXPECT_EQ(choose_pool(with(8, 200'000), 640, kOneForm, {1'000'000, 1'000'000})->n_blocks, 80u) << "eight contexts of ten blocks";
}

TEST(PoolSize, FewerSequencesBeforeNone) {
  const auto size = choose_pool(with(32, 100'000), 640, kTwoForms, {1'000'000, 1'000'000});
  ASSERT_TRUE(size) << size.status().message();
  EXPECT_EQ(size->max_running, 5u);
  EXPECT_EQ(size->n_blocks, 20u);
  ASSERT_EQ(size->warnings.size(), 1u);
  EXPECT_NE(size->warnings[0].find("engine.max_running: 5 instead of 32"), std::string::npos) << size->warnings[0];
  EXPECT_TRUE(choose_pool(with(32, 26'000), 640, kTwoForms, {1'000'000, 1'000'000}));
  const auto none = choose_pool(with(32, 25'999), 640, kTwoForms, {1'000'000, 1'000'000});
  EXPECT_EQ(none.status().code(), Code::invalid_argument) << "a size of the profile's";
  EXPECT_EQ(choose_pool(with(32), 640, kTwoForms, {0, 1'000'000}).status().code(), Code::resource_exhausted) << "the machine's lack";
  EXPECT_EQ(choose_pool(with(32, 2'000'000), 640, kTwoForms, {1'000'000, 1'000'000}).status().code(), Code::invalid_argument);
}

TEST(PoolSize, TokensCountTheOpenBlocksToo) {
  const auto size = choose_pool(with(2, 0, 640), 64, kTwoForms, {1'000'000, 1'000'000});
  EXPECT_EQ(size->n_blocks, 10u);
  EXPECT_EQ(size->bytes, 10 * kPacked + 8 * kOpen);
  EXPECT_TRUE(size->warnings.empty());
  EXPECT_EQ(choose_pool(with(2, 0, 640), 64, kTwoForms, {41'000, 1'000'000})->warnings.size(), 1u);
  EXPECT_EQ(choose_pool(with(2, 0, 640), 64, kTwoForms, {41'000, 41'000}).status().code(), Code::invalid_argument);
}

TEST(PoolSize, HostileFiguresDoNotOverflow) {
  for (const turbo_kv_bytes& bytes : {turbo_kv_bytes{sizeof(turbo_kv_bytes), 0, UINT64_MAX, UINT64_MAX, UINT32_MAX, 0},
                                      turbo_kv_bytes{sizeof(turbo_kv_bytes), 0, 1, UINT64_MAX / 2, UINT32_MAX, 0}}) {
    EXPECT_FALSE(choose_pool(with(1024), UINT32_MAX, bytes, {1'000'000, 1'000'000}));
    EXPECT_FALSE(choose_pool(with(1024, 0, UINT32_MAX), 64, bytes, {1'000'000, 1'000'000}));
  }
}

TEST(KvPlan, IsWhatLoadingWouldTake) {
  model::ModelConfig config;
  config.n_layers = config.n_kv_heads = config.head_dim_k = config.head_dim_v = 1;
  config.context_length = 512;
  const KvTokenBytes token{15, true, "q8", 30};
  for (const auto& profile : {with(8, 200'000), with(32, 100'000), with(2, 0, 640), with(4)}) {
    const Room room{400'000, 1'000'000};
    const auto size = choose_pool(profile, 640, kTwoForms, room);
    const KvPlan plan = plan_kv(profile, config, kTwoForms, token, 0, 640, room, 0);
    EXPECT_EQ(plan.pool_bytes, size->bytes);
    EXPECT_EQ(plan.open_pool_bytes, size->open_bytes);
    EXPECT_EQ(plan.max_running, size->max_running);
    EXPECT_EQ(plan.bytes_per_sequence, 4 * kOpen);
    EXPECT_EQ(plan.context_fits, (plan.pool_budget - plan.open_pool_bytes) / kPacked * 64);
  }
  const std::string text = to_text(plan_kv(with(1, 200'000), config, kTwoForms, token, 0, 640, {400'000, 1'000'000}, 0));
  EXPECT_NE(text.find("(the model's context is 512)"), std::string::npos) << text;
  EXPECT_NE(text.find("before the self-check, which may keep some layers' K in q8: 30 bytes a token if it kept every layer's"), std::string::npos) << text;
  const std::string settled = to_text(plan_kv(with(1, 200'000), config, kTwoForms, {15, false, "q8", 15}, 0, 640, {400'000, 1'000'000}, 0));
  EXPECT_EQ(settled.find("self-check"), std::string::npos) << settled;
  const KvPlan tight = plan_kv(with(8, 1000), config, kTwoForms, token, 0, 640, {400'000, 1'000'000}, 0);
  EXPECT_EQ(tight.pool_bytes, 0u);
  EXPECT_EQ(tight.context_fits, 0u);
  EXPECT_EQ(tight.notes.size(), 1u);
}

}  // namespace
}  // namespace turbo::engine
