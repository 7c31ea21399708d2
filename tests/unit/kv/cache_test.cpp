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

TEST(KvCache, PromisesNeverExceedThePool) {
  KvDevice device;
  auto cache = make_cache(device, 4);
  SequenceBlocks a, b;
  EXPECT_TRUE(cache->reserve(a, 129));  // 3 blocks
  EXPECT_FALSE(cache->reserve(b, 65));
  EXPECT_TRUE(cache->reserve(b, 64));
  EXPECT_EQ(cache->n_reserved(), 4u);
  EXPECT_EQ(cache->n_used(), 0u) << "a promise takes no block yet";
  cache->release(a);
  EXPECT_EQ(cache->n_reserved(), 1u);
}

TEST(KvCache, GrowingStaysInsideThePromise) {
  KvDevice device;
  auto cache = make_cache(device, 8);
  SequenceBlocks a;
  ASSERT_TRUE(cache->reserve(a, 100));
  EXPECT_TRUE(cache->grow(a, 1));
  EXPECT_EQ(a.packed.size(), 1u);
  EXPECT_TRUE(cache->grow(a, 64));
  EXPECT_EQ(a.packed.size(), 1u);
  EXPECT_TRUE(cache->grow(a, 128));
  EXPECT_EQ(a.packed.size(), 2u);
  EXPECT_FALSE(cache->grow(a, 129).is_ok());
  EXPECT_EQ(cache->n_used(), 2u);
  cache->release(a);
  EXPECT_EQ(cache->n_used(), 0u);
  EXPECT_TRUE(a.packed.empty());
}

TEST(KvCache, OneFormIsNeverPacked) {
  KvDevice device;
  auto cache = make_cache(device, 4);
  SequenceBlocks a;
  ASSERT_TRUE(cache->reserve(a, 256));
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
  ASSERT_TRUE(cache->reserve(a, 200));
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

TEST(KvCache, SinksKeepTheirOpenForm) {
  KvDevice device;
  device.one_form = false;
  device.sinks = 65;  // positions 0..64: blocks 0 and 1
  auto cache = make_cache(device, 8, 1);
  EXPECT_EQ(cache->n_open_blocks(), 4u);
  SequenceBlocks a;
  ASSERT_TRUE(cache->reserve(a, 256));
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
  ASSERT_TRUE(cache->reserve(a, 256));
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
  ASSERT_TRUE(cache->reserve(a, 64));
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
    ASSERT_TRUE(cache->reserve(a, 128));
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

}  // namespace turbo::kv
