// Row results do not depend on the batch: whole decoder steps against the plain decoder, bit for bit.
#include "decoder.h"

namespace turbo::test {
namespace {

std::vector<std::string> isas() { return usable_isas(pack_library().component("cpu")); }

// One sequence's tokens and the plain logits after each.
struct Story {
  std::vector<int32_t> tokens;
  std::vector<std::vector<float>> logits;
  std::vector<PlainDecoder> before;  // state before each position, where kept
  Story(const DecoderWeights& w, uint32_t n, uint32_t seed, bool keep_states = false) {
    std::mt19937 random(seed);
    PlainDecoder plain(w);
    for (uint32_t i = 0; i < n; ++i) {
      if (keep_states) before.push_back(plain);
      tokens.push_back(static_cast<int32_t>(random() % w.shape.vocabulary));
      logits.push_back(plain.next(tokens.back()));
    }
  }
};

::testing::AssertionResult equal(const std::vector<float>& got, const std::vector<float>& want, const std::string& where) {
  for (size_t i = 0; i < want.size(); ++i)
    if (!same_bits(&got[i], &want[i], 1)) return ::testing::AssertionFailure() << where << ": logit " << i << " is " << got[i] << ", not " << want[i];
  return ::testing::AssertionSuccess();
}

// Prefill in random chunks, checking every row. Two-form codecs get chunks cut at block edges, as the engine does.
void prefill(PackDecoder& pack, const Story& story, std::mt19937& random, uint32_t most_rows, bool cut, const std::string& where) {
  for (size_t at = 0; at < story.tokens.size();) {
    size_t n = std::min<size_t>(1 + random() % most_rows, story.tokens.size() - at);
    if (cut) n = std::min(n, 64 - at % 64);
    std::vector<StepRow> rows;
    for (size_t i = 0; i < n; ++i) rows.push_back({0, story.tokens[at + i], static_cast<int32_t>(at + i), {}});
    const auto got = pack.step(rows);
    for (size_t i = 0; i < n; ++i) ASSERT_TRUE(equal(got[i], story.logits[at + i], where + " position " + std::to_string(at + i)));
    at += n;
    pack.commit(0, static_cast<int32_t>(at));
  }
}

std::string label(const DecoderShape& s, const std::string& isa, uint32_t threads) {
  return s.codec + " heads " + std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " x " + std::to_string(s.head_dim) + " " + isa + " threads " +
         std::to_string(threads);
}

TEST(Decoder, ChunkedPrefillEqualsThePlainLoopOnEveryIsaAndThreadCount) {
  struct Case { uint32_t heads, kv_heads, head_dim, context, style, act; const char* codec; };
  const Case cases[] = {{4, 2, 16, 300, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "f16"},      {1, 1, 64, 140, TURBO_ROPE_INTERLEAVED, TURBO_ACT_GELU_TANH, "f32"},
                        {3, 1, 80, 140, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "bf16"},     {4, 1, 128, 140, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "f16"},
                        {8, 1, 16, 200, TURBO_ROPE_INTERLEAVED, TURBO_ACT_SILU, "f32"}, {5, 1, 16, 70, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "f16"},
                        {6, 1, 16, 70, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "f16"},       {7, 1, 16, 70, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "f16"},
                        {2, 1, 256, 80, TURBO_ROPE_HALVES, TURBO_ACT_GELU_TANH, "f16"}, {4, 2, 16, 300, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "two_form"},
                        {4, 2, 16, 300, TURBO_ROPE_HALVES, TURBO_ACT_SILU, "mixed"}};
  for (const Case& c : cases) {
    DecoderShape shape;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = c.head_dim;
    shape.style = c.style;
    shape.act = c.act;
    shape.codec = c.codec;
    const DecoderWeights weights(shape);
    const Story story(weights, c.context, 11);
    std::mt19937 random(c.head_dim + c.heads);
    for (const std::string& isa : isas())
      for (uint32_t threads = 1; threads <= 4; ++threads) {
        if (&c != cases && threads % 2 == (c.heads + isa.size()) % 2) continue;  // the first case crosses all, the others half
        PackDecoder pack(weights, threads, isa, 1, random());
        ASSERT_NE(pack.plan, nullptr);
        const uint32_t most = std::vector<uint32_t>{1 + 20, 96, 7, 40}[threads - 1];
        prefill(pack, story, random, most, shape.packs(), label(shape, isa, threads));
        if (HasFatalFailure()) return;
        EXPECT_EQ(pack.world.host.format.misuse, 0u);
      }
  }
}

TEST(Decoder, DecodingOneRowAtATimeSplitsKeysOverThreadsWithTheSameBits) {
  DecoderShape shape;
  shape.heads = 2;
  shape.kv_heads = 1;
  shape.codec = "f16";
  const DecoderWeights weights(shape);
  const Story story(weights, 400, 5);
  for (const uint32_t threads : {1u, 2u, 3u, 4u}) {
    std::mt19937 random(threads);
    PackDecoder pack(weights, threads, "", 1, threads);
    prefill(pack, story, random, 1, false, "one by one, threads " + std::to_string(threads));
    if (HasFatalFailure()) return;
  }
}

TEST(Decoder, RowsOfABatchEqualTheRowAlone) {
  DecoderShape shape;
  shape.codec = "f16";
  const DecoderWeights weights(shape);
  constexpr uint32_t kSequences = 9;
  std::vector<Story> stories;
  for (uint32_t s = 0; s < kSequences; ++s) stories.emplace_back(weights, 150, 100 + s);
  for (const uint32_t threads : {1u, 2u, 4u}) {
    std::mt19937 random(threads);
    PackDecoder pack(weights, threads, "", kSequences, 3);
    std::vector<uint32_t> at(kSequences, 0);
    for (uint32_t s = 0; s < kSequences; ++s) {  // different lengths
      const uint32_t n = 10 + 14 * s;
      for (uint32_t done = 0; done < n;) {
        std::vector<StepRow> rows;
        for (; rows.size() < 60 && done < n; ++done) rows.push_back({s, stories[s].tokens[done], static_cast<int32_t>(done), {}});
        pack.step(rows);
      }
      at[s] = n;
      pack.commit(s, static_cast<int32_t>(n));
    }
    for (int step = 0; step < 12; ++step) {  // 2..9 sequences, some with more than one row, in any order
      std::vector<uint32_t> order(kSequences);
      for (uint32_t s = 0; s < kSequences; ++s) order[s] = s;
      std::shuffle(order.begin(), order.end(), random);
      order.resize(2 + random() % 8);
      std::vector<StepRow> rows;
      for (const uint32_t s : order)
        for (uint32_t n = 1 + random() % 3; n && at[s] < 150; --n, ++at[s]) rows.push_back({s, stories[s].tokens[at[s]], static_cast<int32_t>(at[s]), {}});
      const auto got = pack.step(rows);
      for (size_t i = 0; i < rows.size(); ++i)
        ASSERT_TRUE(equal(got[i], stories[rows[i].seq].logits[static_cast<size_t>(rows[i].position)], "sequence " + std::to_string(rows[i].seq)));
      for (uint32_t s = 0; s < kSequences; ++s) pack.commit(s, static_cast<int32_t>(at[s]));
    }
  }
}

// Random trees past a committed context: each node's logits are those of its path decoded alone; after the best
// branch's rows move to their positions, decoding goes on with the same bits.
void tree_rounds(const DecoderShape& shape, uint32_t context, const std::string& isa, uint32_t threads) {
  const DecoderWeights weights(shape);
  const Story story(weights, context + 40, 21, true);
  std::mt19937 random(threads * 31 + context);
  PackDecoder pack(weights, threads, isa, 1, random());
  Story head = story;
  head.tokens.resize(context);
  prefill(pack, head, random, 64, shape.packs(), "context");
  if (::testing::Test::HasFatalFailure()) return;
  int32_t committed = static_cast<int32_t>(context);
  for (int round = 0; round < 6 && committed + 8 < static_cast<int32_t>(story.tokens.size()); ++round) {
    // The engine keeps a tree inside one block of positions when the codec packs.
    const int32_t deepest = shape.packs() ? std::min(6, 64 - committed % 64) : 6;
    std::vector<StepRow> rows;
    std::vector<PlainDecoder> states;
    std::vector<std::vector<float>> want;
    std::vector<bool> on_story;
    for (int32_t node = 0; node < 14; ++node) {
      size_t parent = rows.size();
      if (node > 0) {
        parent = random() % rows.size();
        if (rows[parent].path.size() >= static_cast<size_t>(deepest)) continue;
      }
      const bool root = node == 0;
      StepRow row{0, 0, root ? committed : rows[parent].position + 1, root ? std::vector<int32_t>{} : rows[parent].path};
      bool follows = root || on_story[parent];
      row.token = static_cast<int32_t>(random() % shape.vocabulary);
      if (follows && (root || random() % 2)) row.token = story.tokens[static_cast<size_t>(row.position)];
      follows = follows && row.token == story.tokens[static_cast<size_t>(row.position)];
      row.path.push_back(committed + static_cast<int32_t>(rows.size()));
      states.push_back(root ? story.before[static_cast<size_t>(committed)] : states[parent]);
      want.push_back(states.back().next(row.token));
      rows.push_back(row);
      on_story.push_back(follows);
    }
    const auto got = pack.step(rows);
    size_t best = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(equal(got[i], want[i], label(shape, isa, threads) + " tree node " + std::to_string(i)));
      if (on_story[i] && rows[i].path.size() > rows[best].path.size()) best = i;
    }
    for (size_t depth = 0; depth < rows[best].path.size(); ++depth) {
      const int32_t from = rows[best].path[depth], to = committed + static_cast<int32_t>(depth);
      if (from == to) continue;
      const auto place = [&](int32_t slot) {
        return turbo_kv_place{sizeof(turbo_kv_place), static_cast<uint32_t>(slot % 64), pack.table->block_table[slot / 64], pack.table->open_table[slot / 64]};
      };
      const turbo_kv_place src = place(from), dst = place(to);
      ASSERT_EQ(pack.world.pack->kv_move_row(pack.world.pack.self(), pack.pool, &src, &dst, &pack.world.error), TURBO_OK);
    }
    committed += static_cast<int32_t>(rows[best].path.size());
    pack.commit(0, committed);
  }
}

TEST(Decoder, TreeRowsEqualTheirPathDecodedAlone) {
  for (const uint32_t context : {1u, 58u, 64u, 130u})
    for (const std::string& isa : isas())
      for (const uint32_t threads : {1u, 3u}) {
        DecoderShape shape;
        for (const char* codec : {"f16", "two_form", "mixed"}) {
          shape.codec = codec;
          tree_rounds(shape, context, isa, threads);
          if (HasFatalFailure()) return;
        }
      }
}

TEST(Decoder, ActivationsAreSharedAndPhasesFew) {
  DecoderShape shape;
  const DecoderWeights weights(shape);
  PackDecoder pack(weights, 2, "", 1, 1);
  pack.world.host.format.prepared = 0;
  pack.step({{0, 1, 0, {}}});
  EXPECT_EQ(pack.world.host.format.prepared, shape.layers * 4 + 1);  // qkv, o, gate and up, down; logits
  const std::string text = pack.world.pack->plan_explain(pack.world.pack.self(), pack.plan);
  // embed and norm share a phase; ten phases a layer; gather, norm and preparation share one; logits.
  EXPECT_NE(text.find("in " + std::to_string(shape.layers * 10 + 2) + " phases"), std::string::npos) << text;
}

}  // namespace
}  // namespace turbo::test
