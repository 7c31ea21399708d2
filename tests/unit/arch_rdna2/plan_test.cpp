// Programs on the pack: what is fused has the bits of what is not, what is recorded those of what is not, and padding rows
// touch nothing.
#include "world.h"

namespace turbo::test {
namespace {

// Steps of two sequences: prefill in chunks, single rows, a tree, and then beyond 256 keys.
std::vector<std::vector<Row>> story(const Shape& shape, uint32_t n_sequences, uint32_t max_rows, bool is_long) {
  std::mt19937 random(3);
  const auto token = [&] { return static_cast<int32_t>(random() % shape.vocabulary); };
  std::vector<int32_t> length(n_sequences, 0);
  std::vector<std::vector<Row>> steps;
  const auto add = [&](std::vector<uint32_t> counts) {
    std::vector<Row> rows;
    for (uint32_t s = 0; s < n_sequences; ++s)
      for (uint32_t i = 0; i < counts[s]; ++i) rows.push_back({s, token(), length[s]++, {}});
    steps.push_back(rows);
  };
  add({max_rows - 1, 1});
  add({1, 1});
  add({0, max_rows});
  add({1, 0});
  for (int i = 0; i < 4; ++i) add({1, 1});
  // A tree of four behind sequence 0: rows of one step, their slots past its length.
  const int32_t root = length[0];
  std::vector<Row> tree{{0, token(), root, {}}, {0, token(), root + 1, {root, root + 1}}, {0, token(), root + 1, {root, root + 2}},
                        {0, token(), root + 2, {root, root + 2, root + 3}}};
  steps.push_back(tree);
  while (is_long && length[1] < 270) add({0, max_rows});
  for (int i = 0; i < 3; ++i) add({1, 1});
  return steps;
}

std::vector<std::vector<float>> play(World& world, const Shape& shape, uint32_t max_rows, bool is_long = false) {
  Decoder decoder(world, shape, max_rows, 2);
  std::vector<std::vector<float>> all;
  if (!decoder.plan) return all;
  for (const std::vector<Row>& rows : story(shape, 2, max_rows, is_long)) {
    for (size_t s = 0; s < 2; ++s)
      for (const Row& row : rows)
        if (row.seq == s && row.path.empty()) {
          decoder.committed[s] = row.position;
          break;
        }
    all.push_back(decoder.step(rows));
    if (world.status != TURBO_OK) break;
    const std::vector<float> tapped = world.rows(decoder.plan, decoder.tapped, rows.size(), shape.width);
    all.back().insert(all.back().end(), tapped.begin(), tapped.end());
  }
  return all;
}

::testing::AssertionResult same(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want) {
  if (got.size() != want.size()) return ::testing::AssertionFailure() << got.size() << " steps, not " << want.size();
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t j = 0; j < want[i].size(); ++j)
      if (std::memcmp(&got[i][j], &want[i][j], 4) != 0 || !std::isfinite(want[i][j]))
        return ::testing::AssertionFailure() << "step " << i << ", value " << j << " is " << got[i][j] << ", not " << want[i][j];
  return ::testing::AssertionSuccess();
}

std::string explained(World& world, const Decoder& decoder) { return world.api().plan_explain(world.self(), decoder.plan); }

TEST(Plan, SelfTestPasses) {
  World world;
  EXPECT_EQ(world.api().self_test(world.self(), &world.error), TURBO_OK) << world.error.message;
}

TEST(Plan, FusedFormsHaveTheBitsOfPlainOnes) {
  Shape shape;
  shape.width = 64;  // whole tiles of bytes
  shape.ff = 96;
  const uint32_t max_rows = 6;
  std::vector<std::vector<float>> plain;
  {
    World world({}, {{"fuse", 0}, {"graphs", 0}});
    plain = play(world, shape, max_rows);
    EXPECT_EQ(world.components->n_attends, 0u);
  }
  const bool off = false;
  const std::vector<Whole::Takes> all{{},
                                      {.norm = off},
                                      {.bias = off},
                                      {.several = off},
                                      {.add = off},
                                      {.gate = off},
                                      {.prologue = off},
                                      {.prologue = off, .append = off},
                                      {.attend = off},
                                      {.bytes = off},
                                      {.rows = off},
                                      {.norm = off, .several = off, .add = off, .gate = off}};
  for (size_t i = 0; i < all.size(); ++i) {
    World world(all[i]);
    EXPECT_TRUE(same(play(world, shape, max_rows), plain)) << "case " << i;
    EXPECT_TRUE(world.logged.empty()) << world.logged[0];
    EXPECT_EQ(world.components->n_bytes > 0, all[i].bytes) << "case " << i;
    EXPECT_EQ(world.components->n_chosen > 0, all[i].rows && all[i].norm) << "case " << i;
  }
}

TEST(Plan, ADecodingLayerIsFiveCalls) {
  World world;
  Shape shape;
  shape.bias = false;
  Decoder decoder(world, shape, 1, 1);
  // Per layer five, then embed, tap and head.
  EXPECT_NE(explained(world, decoder).find(" ops in 13 calls"), std::string::npos) << explained(world, decoder);
}

TEST(Plan, TappedKeysAreMadeByThemselves) {
  Shape shape;
  std::vector<std::vector<float>> plain;
  shape.tap_attention = true;
  {
    World world({}, {{"fuse", 0}});
    plain = play(world, shape, 9);
  }
  World world;
  EXPECT_TRUE(same(play(world, shape, 9), plain));
}

TEST(Plan, OtherActivationsRotationsAndHeads) {
  for (const uint32_t style : {TURBO_ROPE_HALVES, TURBO_ROPE_INTERLEAVED})
    for (const uint32_t act : {TURBO_ACT_SILU, TURBO_ACT_GELU_TANH}) {
      Shape shape;
      shape.style = style;
      shape.act = act;
      shape.heads = 3;
      shape.kv_heads = 1;
      shape.head_dim = 40;
      World plain({}, {{"fuse", 0}, {"graphs", 0}}), fused;
      EXPECT_TRUE(same(play(fused, shape, 5), play(plain, shape, 5)));
    }
}

TEST(Plan, RowsDoNotDependOnTheBucket) {
  Shape shape;
  std::vector<std::vector<float>> want;
  for (const uint32_t bucket : {4u, 7u, 16u}) {
    World world;
    Decoder decoder(world, shape, bucket, 1);
    std::vector<std::vector<float>> got;
    for (int32_t at = 0; at < 12; at += 4) {
      std::vector<Row> rows;
      for (int32_t i = 0; i < 4; ++i) rows.push_back({0, (at + i) * 7 % 40, at + i, {}});
      got.push_back(decoder.step(rows));
    }
    if (want.empty()) want = got;
    EXPECT_TRUE(same(got, want)) << bucket;
  }
}

TEST(Plan, PaddingRowsTouchNothing) {
  World world;
  Shape shape;
  Decoder decoder(world, shape, 16, 2);
  // Every block of the pool full of a pattern, then a step of three rows of sequence 0.
  turbo_kv_pool_desc desc{sizeof desc, shape.layers, shape.kv_heads, shape.head_dim, shape.head_dim, 12, 0};
  turbo_kv_bytes bytes{};
  bytes.struct_size = sizeof bytes;
  ASSERT_EQ(world.api().kv_bytes(world.self(), &desc, &bytes, &world.error), TURBO_OK);
  std::vector<uint8_t> pattern(bytes.block_bytes, 0x5a), found(bytes.block_bytes);
  for (int32_t id = 0; id < 12; ++id)
    ASSERT_EQ(world.api().kv_write(world.self(), decoder.pool, id, TURBO_KV_FORM_PACKED, pattern.data(), pattern.size(), &world.error), TURBO_OK);
  // Rows of an earlier step stay behind in the table, out of its counts.
  std::vector<Row> full;
  for (int32_t i = 0; i < 16; ++i) full.push_back({1, i, i, {}});
  decoder.fill(full);
  for (int run = 0; run < 3; ++run) decoder.step({{0, 1, 0, {}}, {0, 2, 1, {}}, {0, 3, 2, {}}});
  uint64_t changed = 0;
  for (int32_t id = 0; id < 12; ++id) {
    ASSERT_EQ(world.api().kv_read(world.self(), decoder.pool, id, TURBO_KV_FORM_PACKED, found.data(), found.size(), &world.error), TURBO_OK);
    for (const uint8_t byte : found) changed += byte != 0x5a;
    if (id != decoder.table->block_table[0]) { EXPECT_EQ(found, pattern) << id; }
  }
  EXPECT_LE(changed, uint64_t{3} * 2 * shape.layers * shape.kv_heads * shape.head_dim * 4);
  // Kept rows beyond the live ones are as they were made.
  for (const float x : world.rows(decoder.plan, decoder.tapped, 13, shape.width, 3)) EXPECT_EQ(x, 0.0f);
  EXPECT_EQ(hip::check_fiber_memory(), "");
}

TEST(Plan, ReplaysEqualSteps) {
  Shape shape;
  World eager({}, {{"graphs", 0}}), replayed;
  shape.layers = 1;
  const auto want = play(eager, shape, 24, true), got = play(replayed, shape, 24, true);
  EXPECT_TRUE(same(got, want));
  EXPECT_TRUE(replayed.logged.empty());
}

TEST(Plan, HostileTablesDoNotReachTheDevice) {
  World world;
  Shape shape;
  Decoder decoder(world, shape, 4, 2);
  const std::vector<Row> good{{0, 1, 0, {}}, {1, 2, 0, {}}};
  decoder.step(good);
  struct Case { const char* what; std::function<void(turbo_step_table&)> spoil; };
  const Case cases[] = {
      {"rows", [](turbo_step_table& t) { t.n_rows = 5; }},
      {"logit rows", [](turbo_step_table& t) { t.n_logit_rows = 5; }},
      {"a sequence", [](turbo_step_table& t) { t.row_seq[0] = 2; }},
      {"a token", [](turbo_step_table& t) { t.token[0] = 40; }},
      {"a position", [](turbo_step_table& t) { t.position[0] = -1; }},
      {"a slot", [](turbo_step_table& t) { t.slot[1] = 64 * 6; }},
      {"a block", [](turbo_step_table& t) { t.block_table[0] = 12; }},
      {"no block", [](turbo_step_table& t) { t.block_table[6] = -1; }},
      {"a logit row", [](turbo_step_table& t) { t.logit_row[0] = 2; }},
      {"a path", [](turbo_step_table& t) { t.path_length[0] = 9; }},
      {"an address", [](turbo_step_table& t) { t.token += 1; }},
      {"rows apart", [](turbo_step_table& t) {
         t.n_rows = 3;
         t.row_seq[2] = 0;
         t.position[2] = t.slot[2] = 1;
         t.token[2] = 1;
         t.path_length[2] = 0;
       }},
  };
  for (const Case& c : cases) {
    decoder.fill(good);
    const int32_t first = decoder.table->block_table[0], second = decoder.table->block_table[6];
    int32_t* const token = decoder.table->token;
    c.spoil(*decoder.table);
    EXPECT_EQ(world.run(decoder.plan, decoder.table), TURBO_INVALID_ARGUMENT) << c.what;
    EXPECT_NE(std::string(world.error.message).find("step table"), std::string::npos) << c.what << ": " << world.error.message;
    decoder.table->block_table[0] = first;
    decoder.table->block_table[6] = second;
    decoder.table->token = token;
  }
}

TEST(Plan, RowsMoveAndBlocksAreCopied) {
  World world;
  Shape shape;
  Decoder decoder(world, shape, 4, 1);
  decoder.step({{0, 1, 0, {}}, {0, 2, 1, {}}, {0, 3, 2, {}}});
  turbo_kv_bytes bytes{};
  bytes.struct_size = sizeof bytes;
  const turbo_kv_pool_desc desc{sizeof desc, shape.layers, shape.kv_heads, shape.head_dim, shape.head_dim, 6, 0};
  ASSERT_EQ(world.api().kv_bytes(world.self(), &desc, &bytes, &world.error), TURBO_OK);
  const auto read = [&](int32_t id) {
    std::vector<float> block(bytes.block_bytes / 4);
    EXPECT_EQ(world.api().kv_read(world.self(), decoder.pool, id, TURBO_KV_FORM_PACKED, block.data(), bytes.block_bytes, &world.error), TURBO_OK);
    return block;
  };
  const int32_t from = decoder.table->block_table[0], to = decoder.table->block_table[1];
  ASSERT_EQ(world.api().kv_copy(world.self(), decoder.pool, from, to, TURBO_KV_FORM_PACKED, &world.error), TURBO_OK);
  const std::vector<float> before = read(from);
  EXPECT_EQ(std::memcmp(before.data(), read(to).data(), bytes.block_bytes), 0);
  const turbo_kv_place src{sizeof src, 2, from, -1}, dst{sizeof dst, 63, to, -1};
  ASSERT_EQ(world.api().kv_move_row(world.self(), decoder.pool, &src, &dst, &world.error), TURBO_OK) << world.error.message;
  EXPECT_EQ(world.components->n_moves, 2u) << "one call a side, for all layers";
  const std::vector<float> moved = read(to);
  const size_t part = size_t{shape.kv_heads} * 64 * shape.head_dim;
  for (size_t p = 0; p < 2u * shape.layers; ++p)
    for (uint32_t head = 0; head < shape.kv_heads; ++head)
      for (uint32_t e = 0; e < shape.head_dim; ++e)
        EXPECT_EQ(moved[p * part + (head * 64 + 63) * shape.head_dim + e], before[p * part + (head * 64 + 2) * shape.head_dim + e]);
}

}  // namespace
}  // namespace turbo::test
