// Recorded graphs: which step may use which one, what a replay reads, the copy of the step table, and a replay that does
// not do what its steps do.
#include "world.h"

namespace turbo::test {
namespace {

Shape small() {
  Shape shape;
  shape.layers = 1;
  return shape;
}

// What a step gives on a fresh table without graphs. Keys are written again by every step that is asked for.
std::vector<float> eager(const std::vector<std::vector<Row>>& steps, uint32_t max_rows) {
  World world({}, {{"graphs", 0}});
  Decoder decoder(world, small(), max_rows, 1);
  std::vector<float> last;
  for (const std::vector<Row>& rows : steps) last = decoder.step(rows);
  return last;
}

std::vector<Row> rows_at(int32_t position, int32_t n, int32_t token) {
  std::vector<Row> rows;
  for (int32_t i = 0; i < n; ++i) rows.push_back({0, (token + i * 3) % 40, position + i, {}});
  return rows;
}

/// Calls of the format that a step made; a replay makes none.
struct Calls {
  World& world;
  uint32_t of(const std::function<void()>& step) {
    const uint32_t before = world.components->n_matmuls;
    step();
    return world.components->n_matmuls - before;
  }
};

}  // namespace

// N5: a replay serves the table it was recorded for and nothing else: another of the same size, one made where an old one was,
// and addresses of scratch that has moved are done step by step, and then recorded again.
TEST(Replay, GraphsBelongToTheirTableAndScratch) {
  constexpr int32_t kRows = 16;  // so that scores of longer keys need more scratch
  World world;
  Decoder decoder(world, small(), kRows, 1);
  Calls calls{world};
  const auto step = [&](const std::vector<Row>& rows) { return calls.of([&] { decoder.step(rows); }); };
  const auto good = [&](const std::vector<Row>& rows, const std::vector<std::vector<Row>>& all) {
    std::vector<float> got;
    const uint32_t made = calls.of([&] { got = decoder.step(rows); });
    EXPECT_EQ(got, eager(all, kRows));
    return made;
  };
  const uint32_t whole = step(rows_at(0, 3, 1));
  ASSERT_GT(whole, 0u);
  EXPECT_EQ(step(rows_at(0, 3, 2)), 2 * whole) << "recorded, and done once more to compare";
  EXPECT_EQ(good(rows_at(0, 3, 5), {rows_at(0, 3, 5)}), 0u) << "a replay, of another step's tokens";

  turbo_step_table* const first = decoder.table;
  decoder.table = world.table(kRows, 1, Decoder::kBlocks, Decoder::kPath);
  std::copy_n(first->block_table, Decoder::kBlocks, decoder.table->block_table);
  EXPECT_EQ(good(rows_at(0, 2, 7), {rows_at(0, 2, 7)}), whole) << "another table";
  decoder.table = first;
  EXPECT_EQ(good(rows_at(0, 3, 11), {rows_at(0, 3, 11)}), 0u) << "the first has kept its own";

  std::vector<std::vector<Row>> longer{rows_at(0, kRows, 1)};
  while (longer.back()[0].position < 256) longer.push_back(rows_at(longer.back()[0].position + kRows, kRows, 1));
  for (const std::vector<Row>& rows : longer) decoder.step(rows);
  EXPECT_EQ(good(rows_at(0, 3, 13), {rows_at(0, 3, 13)}), whole) << "scratch has grown for longer keys";
  EXPECT_EQ(step(rows_at(0, 3, 13)), whole) << "recorded again; the plan has been compared";
  EXPECT_EQ(good(rows_at(0, 1, 17), {rows_at(0, 1, 17)}), 0u);

  const std::vector<int32_t> blocks(first->block_table, first->block_table + Decoder::kBlocks);
  world.drop(first);
  decoder.table = world.table(kRows, 1, Decoder::kBlocks, Decoder::kPath);  // likely where the old one was
  std::copy(blocks.begin(), blocks.end(), decoder.table->block_table);
  EXPECT_EQ(good(rows_at(0, 3, 19), {rows_at(0, 3, 19)}), whole) << "a new table";
  EXPECT_TRUE(world.logged.empty()) << world.logged[0];
}

// N6: a replay reads inputs where the caller writes them, as steps do: none of them has a copy of its own.
TEST(Replay, InputsAreReadWhereTheyAreWritten) {
  World world;
  ProgramBuilder p("sums", 2, 2, nullptr);
  const uint32_t in = p.input("in", 40), embedded = p.buffer("embedded", 40), out = p.buffer("out", 40, TURBO_ROWS_STEP, true);
  std::vector<float> values(5 * 40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  p.embed(world.weight(values, 5, 40), embedded);
  p.add(in, embedded, out);
  turbo_plan* const plan = world.compile(p.program());
  ASSERT_NE(plan, nullptr) << world.error.message;
  turbo_step_table* const table = world.table(2);
  turbo_view view{};
  view.struct_size = sizeof view;
  ASSERT_EQ(world.api().plan_buffer(world.self(), plan, in, &view, &world.error), TURBO_OK) << world.error.message;
  auto* const written = static_cast<float*>(const_cast<void*>(static_cast<const void*>(view.data)));
  const uint64_t stride = static_cast<uint64_t>(view.stride[0]) / sizeof(float);
  table->n_rows = 2;
  for (int run = 0; run < 6; ++run) {
    table->token[0] = run % 5;
    table->token[1] = 4 - run % 5;
    for (uint64_t row = 0; row < 2; ++row)
      for (uint64_t i = 0; i < 40; ++i) written[row * stride + i] = static_cast<float>(1000 * run + 7 * static_cast<int>(row));
    ASSERT_EQ(world.run(plan, table), TURBO_OK) << world.error.message;
    const std::vector<float> got = world.rows(plan, out, 2, 40);
    for (size_t row = 0; row < 2; ++row)
      for (size_t i = 0; i < 40; ++i)
        ASSERT_EQ(got[row * 40 + i], values[static_cast<size_t>(table->token[row]) * 40 + i] + static_cast<float>(1000 * run + 7 * static_cast<int>(row))) << "run " << run;
    turbo_view again{};
    again.struct_size = sizeof again;
    ASSERT_EQ(world.api().plan_buffer(world.self(), plan, in, &again, &world.error), TURBO_OK);
    ASSERT_EQ(again.data, view.data);
  }
  EXPECT_TRUE(world.logged.empty()) << world.logged[0];
}

// N7: one launch copies all of a step's values, however many there are, and no word that the step does not use.
TEST(Replay, TheTablesCopyTakesFieldsOfAnySize) {
  World world;
  const turbo_device& device = *world.pack->device_table();
  const Ops ops(device);
  constexpr uint32_t kMost = 1u << 16;
  struct Case { uint32_t rows, sequences, logit_rows, path, blocks; };
  for (const Case c : {Case{kMost - 1, 1, 1, 1, 3}, Case{kMost, 2, 7, 1, 1}, Case{kMost + 1, 1, kMost + 1, 0, 2}, Case{2, 1, 2, kMost / 2, kMost - 1},
                       Case{1, 1, 1, kMost + 1, kMost}, Case{3, 1, 0, 5, kMost + 1}, Case{1, kMost + 1, 1, 2, 1}, Case{1, 1, 1, 0, 0}}) {
    const uint64_t rows = c.rows + 3, path = c.path + 2, sequences = c.sequences + 1, blocks = c.blocks + 5, logit_rows = c.logit_rows + 1;
    const uint64_t words = 5 * rows + rows * path + sequences + 2 * sequences * blocks + logit_rows;
    const auto make = [&](uint32_t memory, uint64_t n) { return static_cast<uint32_t*>(device.allocate(device.ctx, memory, n * 4, "test", nullptr)); };
    uint32_t *const head = make(TURBO_MEMORY_PINNED, kHeadWords), *const source = make(TURBO_MEMORY_PINNED, words), *const counts = make(TURBO_MEMORY_DEVICE, kCountsTag + 1),
             *const target = make(TURBO_MEMORY_DEVICE, words);
    const uint32_t used[kHeadWords] = {c.rows, c.sequences, c.logit_rows, 1, c.path, c.blocks, 4711};
    std::copy_n(used, kHeadWords, head);
    std::mt19937 random(c.rows + c.blocks);
    for (uint64_t i = 0; i < words; ++i) source[i] = static_cast<uint32_t>(random()) | 1u, target[i] = 0;
    ops.table({head, reinterpret_cast<const int32_t*>(source), counts, reinterpret_cast<int32_t*>(target), static_cast<uint32_t>(rows), static_cast<uint32_t>(sequences),
               static_cast<uint32_t>(logit_rows), static_cast<uint32_t>(blocks), static_cast<uint32_t>(path), 0});
    ASSERT_EQ(device.sync(device.ctx, device.stream, nullptr), TURBO_OK);
    EXPECT_TRUE(std::equal(counts, counts + 4, used));
    EXPECT_EQ(counts[kCountsTag], used[kHeadTag]);
    uint64_t at = 0, wrong = 0;
    const auto field = [&](uint64_t n, uint64_t length, uint64_t n_used, uint64_t length_used) {
      for (uint64_t i = 0; i < n; ++i)
        for (uint64_t k = 0; k < length; ++k, ++at) wrong += target[at] != (i < n_used && k < length_used ? source[at] : 0u);
    };
    field(5, rows, 5, c.rows);
    field(rows, path, c.rows, c.path);
    field(1, sequences, 1, c.sequences);
    field(sequences, blocks, c.sequences, c.blocks);
    field(sequences, blocks, c.sequences, c.blocks);
    field(1, logit_rows, 1, c.logit_rows);
    EXPECT_EQ(at, words);
    EXPECT_EQ(wrong, 0u) << c.rows << " rows, " << c.blocks << " blocks";
    for (uint32_t* memory : {head, source, counts, target}) device.release(device.ctx, memory);
  }
}

// A graph that was recorded wrong is noticed by its first replay, which is compared: the step's results are those of its
// steps, the reason is told once, and the plan goes on without graphs.
TEST(Replay, OneThatDiffersIsNoticedAndLeft) {
  World world;
  Decoder decoder(world, small(), 4, 1);
  Calls calls{world};
  std::vector<std::vector<Row>> steps;
  uint32_t whole = 0;
  for (int32_t at = 0; at < 12; at += 3) {
    steps.push_back(rows_at(at, 3, at + 1));
    decoder.committed[0] = at;
    // The second step is recorded first, then done by steps, then replayed.
    if (at == 3) world.components->spoil_matmul = world.components->n_matmuls + 2;
    std::vector<float> got;
    const uint32_t made = calls.of([&] { got = decoder.step(steps.back()); });
    if (at == 0) whole = made;
    EXPECT_EQ(made, at == 3 ? 3 * whole : whole) << "recorded and compared once, never again";
    EXPECT_EQ(got, eager(steps, 4)) << "step " << at / 3;
  }
  ASSERT_EQ(world.logged.size(), 1u);
  EXPECT_NE(world.logged[0].find("'decoder' goes on without recorded graphs: a replay did not give the bits of its steps"), std::string::npos) << world.logged[0];
  // Other plans keep theirs.
  Decoder other(world, small(), 4, 1);
  other.step(rows_at(0, 2, 1));
  other.step(rows_at(0, 2, 1));
  EXPECT_EQ(calls.of([&] { other.step(rows_at(0, 2, 3)); }), 0u);
  EXPECT_EQ(world.logged.size(), 1u);
}

// What cannot be recorded is done step by step too.
TEST(Replay, ACallThatFailsWhileRecordedIsLeft) {
  World world;
  Decoder decoder(world, small(), 4, 1);
  std::vector<std::vector<Row>> steps;
  for (int32_t at = 0; at < 9; at += 3) {
    steps.push_back(rows_at(at, 3, at + 1));
    decoder.committed[0] = at;
    if (at == 3) world.components->fail_matmul = world.components->n_matmuls + 2;
    EXPECT_EQ(decoder.step(steps.back()), eager(steps, 4)) << "step " << at / 3;
  }
  ASSERT_EQ(world.logged.size(), 1u);
  EXPECT_NE(world.logged[0].find("goes on without recorded graphs"), std::string::npos) << world.logged[0];
}

}  // namespace turbo::test
