#include "kv/cache.h"

#include <gtest/gtest.h>

#include "support/kv_device.h"

namespace turbo::kv {
namespace {

using turbo::testing::KvDevice;
using turbo::testing::kv_device_api;
using Pairs = std::vector<std::pair<int32_t, int32_t>>;

std::unique_ptr<KvCache> make_cache(KvDevice& device, uint32_t n_blocks, uint32_t max_sequences = 2) {
  auto cache = KvCache::create(kv_device_api(), &device, {1, 1, 64, 64, n_blocks, max_sequences});
  EXPECT_TRUE(cache) << cache.status().message();
  return std::move(*cache);
}

}  // namespace

TEST(KvCache, BlocksForPositions) {
  EXPECT_EQ(blocks_for(0), 0u);
  EXPECT_EQ(blocks_for(1), 1u);
  EXPECT_EQ(blocks_for(64), 1u);
  EXPECT_EQ(blocks_for(65), 2u);
}

TEST(KvCache, ThePoolIsFreedWithTheCache) {
  KvDevice device;
  make_cache(device, 4);
  EXPECT_EQ(device.pools_alive, 0u);
}

TEST(KvCache, GrowingTakesBlocksUntilThePoolIsEmpty) {
  KvDevice device;
  auto cache = make_cache(device, 3);
  SequenceBlocks a, b;
  EXPECT_TRUE(cache->grow(a, 1));
  EXPECT_EQ(a.packed.size(), 1u);
  EXPECT_TRUE(cache->grow(a, 64));
  EXPECT_EQ(a.packed.size(), 1u);
  EXPECT_TRUE(cache->grow(a, 128));
  EXPECT_EQ(a.packed.size(), 2u);
  EXPECT_FALSE(cache->grow(b, 128)) << "one block is left";
  EXPECT_EQ(b.packed.size(), 1u) << "what was got stays";
  EXPECT_EQ(cache->n_used(), 3u);
  cache->release(a);
  EXPECT_TRUE(cache->grow(b, 128));
  cache->release(b);
  EXPECT_EQ(cache->n_used(), 0u);
  EXPECT_TRUE(b.packed.empty());
  EXPECT_TRUE(cache->check_idle());
}

TEST(KvCache, OneFormIsNeverPacked) {
  KvDevice device;
  auto cache = make_cache(device, 4);
  SequenceBlocks a;
  ASSERT_TRUE(cache->grow(a, 256));
  EXPECT_TRUE(cache->commit(a, 256));
  EXPECT_TRUE(device.packed.empty());
  EXPECT_EQ(a.open, std::vector<int32_t>(4, -1));
  EXPECT_EQ(device.open_blocks_made, 0u);
  EXPECT_FALSE(cache->step_stays_in_block());
}

TEST(KvCache, AClosedBlockIsPackedOnceAndGivesItsOpenFormBack) {
  KvDevice device;
  device.one_form = false;
  auto cache = make_cache(device, 8, 1);
  EXPECT_TRUE(cache->step_stays_in_block());
  EXPECT_EQ(cache->n_open_blocks(), 2u);
  SequenceBlocks a;
  ASSERT_TRUE(cache->grow(a, 64));
  const int32_t open = a.open[0], block = a.packed[0];
  EXPECT_TRUE(cache->commit(a, 63));
  EXPECT_TRUE(device.packed.empty());
  EXPECT_TRUE(cache->commit(a, 64));
  EXPECT_EQ(device.packed, (Pairs{{open, block}}));
  EXPECT_EQ(a.open[0], -1);
  EXPECT_TRUE(cache->commit(a, 64));
  EXPECT_EQ(device.packed.size(), 1u);
  // With the open form given back, the two open blocks carry any number of positions.
  for (uint32_t end = 65; end <= 200; ++end) {
    ASSERT_TRUE(cache->grow(a, end));
    ASSERT_TRUE(cache->commit(a, end));
  }
  EXPECT_EQ(device.packed.size(), 3u);
}

TEST(KvCache, ExactPromptsHaveOpenBlocksForAWholeStep) {
  KvDevice device;
  device.one_form = false;
  auto created = KvCache::create(kv_device_api(), &device, {1, 1, 64, 64, 16, 2, 256});
  ASSERT_TRUE(created);
  KvCache& cache = **created;
  EXPECT_TRUE(cache.prompts_cross_blocks());
  EXPECT_FALSE(make_cache(device, 4)->prompts_cross_blocks());
  EXPECT_EQ(cache.n_open_blocks(), 2u * 2 + 4);
  // Two prompts share a step of 256 rows, from the middle of a block each.
  SequenceBlocks a, b;
  for (SequenceBlocks* each : {&a, &b}) {
    ASSERT_TRUE(cache.grow(*each, 40));
    ASSERT_TRUE(cache.commit(*each, 40));
  }
  ASSERT_TRUE(cache.grow(a, 40 + 100));
  ASSERT_TRUE(cache.grow(b, 40 + 156));
  EXPECT_TRUE(device.packed.empty());
  ASSERT_TRUE(cache.commit(a, 40 + 100));
  ASSERT_TRUE(cache.commit(b, 40 + 156));
  EXPECT_EQ(device.packed.size(), 2u + 3);
  EXPECT_EQ(a.open[1], -1);
  EXPECT_GE(a.open[2], 0);
  device.one_form = true;
  auto plain = KvCache::create(kv_device_api(), &device, {1, 1, 64, 64, 16, 2, 256});
  ASSERT_TRUE(plain);
  EXPECT_FALSE((*plain)->prompts_cross_blocks()) << "nothing is ever packed";
  EXPECT_EQ((*plain)->n_open_blocks(), 0u);
}

TEST(KvCache, SinksKeepTheirOpenForm) {
  KvDevice device;
  device.one_form = false;
  device.sinks = 65;  // positions 0..64: blocks 0 and 1
  auto cache = make_cache(device, 8, 1);
  EXPECT_EQ(cache->n_open_blocks(), 6u) << "two to write, two sinks, and as many sinks for the prefix tree";
  SequenceBlocks a;
  for (uint32_t end = 64; end <= 256; end += 64) {
    ASSERT_TRUE(cache->grow(a, end));
    ASSERT_TRUE(cache->commit(a, end));
  }
  EXPECT_EQ(device.packed.size(), 4u) << "later blocks read sinks packed or open, as the codec wants";
  EXPECT_GE(a.open[0], 0);
  EXPECT_GE(a.open[1], 0);
  EXPECT_EQ(a.open[2], -1);
  EXPECT_EQ(a.open[3], -1);
  cache->release(a);
  // Every open block came back: the same walk works again.
  for (uint32_t end = 64; end <= 256; end += 64) {
    ASSERT_TRUE(cache->grow(a, end));
    ASSERT_TRUE(cache->commit(a, end));
  }
}

TEST(KvCache, AFailedPackIsTheCallersError) {
  KvDevice device;
  device.one_form = false;
  device.fail_pack = true;
  auto cache = make_cache(device, 4, 1);
  SequenceBlocks a;
  ASSERT_TRUE(cache->grow(a, 64));
  const Status status = cache->commit(a, 64);
  EXPECT_FALSE(status.is_ok());
  EXPECT_NE(status.message().find("scripted failure"), std::string::npos) << status.message();
  cache->release(a);
  EXPECT_EQ(cache->n_used(), 0u);
}

TEST(KvCache, RowsMoveInTheFormThatIsWritten) {
  for (const bool one_form : {true, false}) {
    KvDevice device;
    device.one_form = one_form;
    auto cache = make_cache(device, 4, 1);
    SequenceBlocks a;
      ASSERT_TRUE(cache->grow(a, 128));
    const std::vector<int32_t>& ids = one_form ? a.packed : a.open;
    EXPECT_TRUE(cache->move_row(a, 66, 63));
    ASSERT_EQ(device.moved_rows.size(), 1u);
    EXPECT_EQ(device.moved_rows[0], std::make_tuple(ids[1], 2u, ids[0], 63u));
    EXPECT_TRUE(cache->move_row(a, 5, 5));
    EXPECT_EQ(device.moved_rows.size(), 1u) << "a row that stays costs nothing";
    EXPECT_FALSE(cache->move_row(a, 128, 0).is_ok());
  }
}

TEST(KvCache, BytesAreThoseOfTheForms) {
  KvDevice device;
  device.one_form = false;
  auto cache = make_cache(device, 8, 3);
  EXPECT_EQ(cache->pool_bytes(), 8u * 1024 + 6u * 4096);
  EXPECT_EQ(cache->bytes_per_token(), 1024u / 64);
}

namespace {

std::vector<int32_t> tokens_from(int32_t first, uint32_t n) {
  std::vector<int32_t> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = first + static_cast<int32_t>(i);
  return tokens;
}
// A sequence that computed all of its tokens.
SequenceBlocks computed(KvCache& cache, const std::vector<int32_t>& tokens, const char* salt = "") {
  SequenceBlocks blocks;
  cache.share(blocks, salt);
  cache.adopt(blocks, tokens, static_cast<uint32_t>(tokens.size()));
  while (blocks.committed < tokens.size()) {
    const uint32_t end = std::min<uint32_t>(static_cast<uint32_t>(tokens.size()), (blocks.committed / 64 + 1) * 64);
    EXPECT_TRUE(cache.grow(blocks, end));
    EXPECT_TRUE(cache.commit(blocks, end));
    cache.publish(blocks, tokens);
  }
  return blocks;
}

}  // namespace

TEST(KvCache, ClosedBlocksAreAdoptedAndTheOpenOneIsNot) {
  KvDevice device;
  auto cache = make_cache(device, 8);
  const auto tokens = tokens_from(0, 150);
  SequenceBlocks a = computed(*cache, tokens), b;
  cache->share(b, "");
  EXPECT_EQ(cache->adopt(b, tokens, 149), 128u);
  EXPECT_EQ(b.packed, std::vector<int32_t>(a.packed.begin(), a.packed.begin() + 2));
  EXPECT_EQ(cache->n_used(), 3u) << "shared, not copied";
  EXPECT_EQ(cache->adopt(b, tokens, 149), 128u) << "asking again changes nothing";
  cache->release(a);
  EXPECT_EQ(cache->n_used(), 2u);
  cache->release(b);
  EXPECT_EQ(cache->n_cached(), 2u);
  EXPECT_TRUE(cache->check_idle());
}

TEST(KvCache, AHitEndsAtTheLimitAndAtTheFirstDifference) {
  KvDevice device;
  auto cache = make_cache(device, 8);
  auto tokens = tokens_from(0, 192);
  SequenceBlocks a = computed(*cache, tokens), b, c, d;
  cache->share(b, "");
  EXPECT_EQ(cache->adopt(b, tokens, 191), 128u) << "the last token's row must run";
  tokens[100] = 7;
  cache->share(c, "");
  EXPECT_EQ(cache->adopt(c, tokens, 191), 64u);
  cache->share(d, "another tenant");
  EXPECT_EQ(cache->adopt(d, tokens_from(0, 192), 191), 0u);
  for (SequenceBlocks* blocks : {&a, &b, &c, &d}) cache->release(*blocks);
  EXPECT_TRUE(cache->check_idle());
}

TEST(KvCache, EqualBlocksComputedTwiceAreKeptOnce) {
  KvDevice device;
  auto cache = make_cache(device, 8);
  const auto tokens = tokens_from(3, 64);
  SequenceBlocks a, b;
  for (SequenceBlocks* blocks : {&a, &b}) {
    cache->share(*blocks, "");
    ASSERT_TRUE(cache->grow(*blocks, 64));
    ASSERT_TRUE(cache->commit(*blocks, 64));
  }
  EXPECT_EQ(cache->n_used(), 2u);
  cache->publish(a, tokens);
  cache->publish(b, tokens);
  EXPECT_EQ(cache->n_used(), 1u);
  EXPECT_EQ(a.packed, b.packed);
  cache->release(a);
  cache->release(b);
  EXPECT_EQ(cache->flush(), 1u);
  EXPECT_EQ(cache->n_used(), 0u);
}

TEST(KvCache, GrowingEvictsTheLeastRecentlyUsedLeafFirst) {
  KvDevice device;
  auto cache = make_cache(device, 5);
  const auto old_tokens = tokens_from(0, 128), new_tokens = tokens_from(500, 128);
  SequenceBlocks a = computed(*cache, old_tokens);
  cache->release(a);
  SequenceBlocks b = computed(*cache, new_tokens);
  cache->release(b);
  EXPECT_EQ(cache->n_cached(), 4u);
  EXPECT_EQ(cache->n_available(), 5u);
  SequenceBlocks c;
  ASSERT_TRUE(cache->grow(c, 128));  // one free, one evicted
  SequenceBlocks old_again, new_again;
  cache->share(old_again, "");
  cache->share(new_again, "");
  EXPECT_EQ(cache->adopt(old_again, old_tokens, 128), 64u) << "the older chain lost its leaf";
  EXPECT_EQ(cache->adopt(new_again, new_tokens, 128), 128u);
  EXPECT_FALSE(cache->grow(c, 192)) << "what sequences hold is never evicted";
  for (SequenceBlocks* blocks : {&c, &old_again, &new_again}) cache->release(*blocks);
  EXPECT_TRUE(cache->check_idle());
}

TEST(KvCache, SinksAreSharedInBothForms) {
  KvDevice device;
  device.one_form = false;
  device.sinks = 4;
  auto cache = make_cache(device, 8, 2);
  const auto tokens = tokens_from(0, 128);
  SequenceBlocks a = computed(*cache, tokens), b;
  cache->share(b, "");
  EXPECT_EQ(cache->adopt(b, tokens, 128), 128u);
  EXPECT_EQ(b.open, a.open);
  EXPECT_GE(b.open[0], 0);
  EXPECT_EQ(b.open[1], -1);
  cache->release(a);
  cache->release(b);
  // However many prompts left their sinks in the tree, new ones get open blocks.
  for (int32_t i = 1; i < 40; ++i) {
    SequenceBlocks next = computed(*cache, tokens_from(i * 1000, 128));
    cache->release(next);
  }
  EXPECT_TRUE(cache->check_idle());
}

TEST(KvCache, BlocksGoOutAndComeBackWithTheirBytes) {
  KvDevice device;
  device.one_form = false;
  device.sinks = 1;
  auto cache = make_cache(device, 8, 2);
  const auto tokens = tokens_from(0, 128);
  SequenceBlocks a = computed(*cache, tokens);
  std::vector<std::byte> first(cache->bytes_of(0)), second(cache->bytes_of(1));
  EXPECT_EQ(first.size(), 1024u + 4096u);
  EXPECT_EQ(second.size(), 1024u);
  EXPECT_TRUE(cache->read_block(a.packed[0], a.open[0], first));
  EXPECT_FALSE(cache->read_block(a.packed[1], a.open[1], first).is_ok()) << "a wrong size is refused";
  SequenceBlocks b;
  cache->share(b, "restored");
  EXPECT_TRUE(cache->restore_block(b, std::span(tokens).first<64>(), first));
  EXPECT_FALSE(cache->restore_block(b, std::span(tokens).last<64>(), first).is_ok());
  EXPECT_TRUE(cache->restore_block(b, std::span(tokens).last<64>(), second));
  EXPECT_EQ(b.committed, 128u);
  EXPECT_EQ(device.written.size(), 3u);
  cache->release(a);
  cache->release(b);
  EXPECT_TRUE(cache->check_idle());
}

}  // namespace turbo::kv
