// Programs and step tables that lie: an error, never a crash, a stray read or a wrong result for others.
#include "decoder.h"

#include <functional>

namespace turbo::test {
namespace {

// A valid program as plain arrays that tests damage.
struct Damaged {
  PackDecoder& pack;
  const DecoderWeights& weights;
  std::vector<turbo_buffer> buffers;
  std::vector<turbo_op> ops;
  turbo_program program{};

  Damaged(PackDecoder& p, const DecoderWeights& w) : pack(p), weights(w) {
    const DecoderShape& s = w.shape;
    ProgramBuilder b("damaged", 4, 4, p.pool);
    const auto load = [&](const Matrix& m) { return p.world.weight(m.values, m.rows, m.cols); };
    const auto& l = w.layers[0];
    const uint32_t in = b.input("in", s.width), x = b.buffer("x", s.width), h = b.buffer("h", s.width), q = b.buffer("q", s.q_width()),
                   k = b.buffer("k", s.kv_width()), v = b.buffer("v", s.kv_width()), a = b.buffer("a", s.q_width()), both = b.buffer("both", 2 * s.width),
                   out = b.buffer("out", s.width, TURBO_ROWS_LOGIT, true), ids = b.buffer("ids", 3, TURBO_ROWS_LOGIT, true),
                   best = b.buffer("best", 3, TURBO_ROWS_LOGIT, true), tapped = b.buffer("tapped", s.width, TURBO_ROWS_STEP, true);
    b.embed(load(w.embed), x);
    b.add(x, in, x);
    b.rms_norm(load(l.norm), x, h, 1e-6f);
    b.matmul(load(l.q), h, q, load(l.q_bias));
    b.matmul(load(l.k), h, k);
    b.matmul(load(l.v), h, v);
    b.rope({load(w.frequencies), q, s.heads, s.head_dim, s.head_dim, 0, 1.0f});
    b.kv_append(0, k, v);
    b.attend({0, q, a, s.heads, 0.25f});
    b.matmul(load(l.o), a, h);
    b.gated_act(h, x, h, 0);
    b.concat(x, h, both);
    b.tap(h, tapped);
    b.gather_rows(h, out);
    const turbo_program built = b.program();
    buffers.assign(built.buffers, built.buffers + built.n_buffers);
    ops.assign(built.ops, built.ops + built.n_ops);
    turbo_op top{};
    top.struct_size = sizeof top;
    top.kind = TURBO_OP_TOP_K;
    top.u.top_k = {out, ids, best, 3};
    ops.push_back(top);
    for (turbo_buffer& buffer : buffers) buffer.name = nullptr;
    program = built;
    program.name = "damaged";
    program.buffers = buffers.data();
    program.ops = ops.data();
    program.n_ops = static_cast<uint32_t>(ops.size());
  }
  turbo_op& op(uint32_t kind) {
    for (turbo_op& o : ops)
      if (o.kind == kind) return o;
    return ops[0];
  }
  turbo_status compile() {
    turbo_plan* plan = pack.world.compile(program);
    if (plan) pack.world.pack->plan_free(pack.world.pack.self(), plan);
    return pack.world.status;
  }
};

TEST(Hostile, ProgramsAreRefusedWithTheOpNamed) {
  const DecoderWeights weights{DecoderShape{}};
  PackDecoder pack(weights, 2, "", 1, 1);
  ASSERT_EQ(Damaged(pack, weights).compile(), TURBO_OK) << pack.world.error.message;
  turbo_kv_pool* stranger = reinterpret_cast<turbo_kv_pool*>(0x1000);
  const turbo_weight* no_weight = reinterpret_cast<const turbo_weight*>(0x1000);
  const std::vector<std::function<void(Damaged&)>> damages = {
      [](Damaged& d) { d.program.max_rows = 0; },
      [](Damaged& d) { d.program.max_rows = 1u << 30; },
      [](Damaged& d) { d.program.max_logit_rows = 0; },
      [](Damaged& d) { d.program.n_buffers = 1u << 30; },
      [](Damaged& d) { d.program.n_buffers = 3; },
      [](Damaged& d) { d.program.n_ops = 0; },
      [](Damaged& d) { d.program.n_ops = 1u << 30; },
      [](Damaged& d) { d.program.n_inputs = 99; },
      [](Damaged& d) { d.program.n_inputs = 0; },  // the input is then read before written
      [](Damaged& d) { d.program.kv = nullptr; },
      [=](Damaged& d) { d.program.kv = stranger; },
      [](Damaged& d) { d.program.struct_size = 8; },
      [](Damaged& d) { d.buffers[1].width = 0; },
      [](Damaged& d) { d.buffers[1].width = UINT64_MAX; },
      [](Damaged& d) { d.buffers[1].width = 7; },
      [](Damaged& d) { d.buffers[1].rows = 9; },
      [](Damaged& d) { d.buffers[2].rows = TURBO_ROWS_LOGIT; },
      [](Damaged& d) { d.ops[0].struct_size = 0; },
      [](Damaged& d) { d.ops[0].kind = 0; },
      [](Damaged& d) { d.ops[0].kind = TURBO_OP_ALL_REDUCE; },
      [](Damaged& d) { std::swap(d.ops[2], d.ops[3]); },
      [=](Damaged& d) { d.op(TURBO_OP_EMBED).u.embed.table = no_weight; },
      [](Damaged& d) { d.op(TURBO_OP_EMBED).u.embed.table = nullptr; },
      [](Damaged& d) { d.op(TURBO_OP_EMBED).u.embed.out = TURBO_NO_BUFFER; },
      [](Damaged& d) { d.op(TURBO_OP_EMBED).u.embed.table = d.op(TURBO_OP_RMS_NORM).u.rms_norm.weight; },
      [](Damaged& d) { d.op(TURBO_OP_RMS_NORM).u.rms_norm.groups = 0; },
      [](Damaged& d) { d.op(TURBO_OP_RMS_NORM).u.rms_norm.groups = 7; },
      [](Damaged& d) { d.op(TURBO_OP_RMS_NORM).u.rms_norm.eps = NAN; },
      [](Damaged& d) { d.op(TURBO_OP_RMS_NORM).u.rms_norm.weight = d.op(TURBO_OP_MATMUL).u.matmul.weight; },
      [](Damaged& d) { d.op(TURBO_OP_MATMUL).u.matmul.bias = d.op(TURBO_OP_RMS_NORM).u.rms_norm.weight; },
      [](Damaged& d) { d.op(TURBO_OP_MATMUL).u.matmul.out = d.op(TURBO_OP_MATMUL).u.matmul.in; },
      [](Damaged& d) { d.op(TURBO_OP_ROPE).u.rope.dims = 15; },
      [](Damaged& d) { d.op(TURBO_OP_ROPE).u.rope.dims = 1u << 30; },
      [](Damaged& d) { d.op(TURBO_OP_ROPE).u.rope.n_heads = 0; },
      [](Damaged& d) { d.op(TURBO_OP_ROPE).u.rope.n_heads = 1u << 31; },
      [](Damaged& d) { d.op(TURBO_OP_ROPE).u.rope.style = 2; },
      [](Damaged& d) { d.op(TURBO_OP_KV_APPEND).u.kv_append.layer = 2; },
      [](Damaged& d) { d.op(TURBO_OP_KV_APPEND).u.kv_append.k = d.op(TURBO_OP_ATTEND).u.attend.q; },
      [](Damaged& d) { d.ops[8] = d.ops[7]; },  // appended twice
      [](Damaged& d) { d.op(TURBO_OP_ATTEND).u.attend.layer = UINT32_MAX; },
      [](Damaged& d) { d.op(TURBO_OP_ATTEND).u.attend.n_heads = 3; },
      [](Damaged& d) { d.op(TURBO_OP_ATTEND).u.attend.n_heads = 0; },
      [](Damaged& d) { d.op(TURBO_OP_ATTEND).u.attend.scale = INFINITY; },
      [](Damaged& d) { d.op(TURBO_OP_ATTEND).u.attend.out = d.op(TURBO_OP_ATTEND).u.attend.q; },
      [](Damaged& d) { d.op(TURBO_OP_GATED_ACT).u.gated_act.act = 5; },
      [](Damaged& d) { d.op(TURBO_OP_CONCAT).u.concat.out = d.op(TURBO_OP_CONCAT).u.concat.a; },
      [](Damaged& d) { d.op(TURBO_OP_TAP).u.tap.in = 500; },
      [](Damaged& d) { d.op(TURBO_OP_TAP).u.tap.out = 5000; },
      [](Damaged& d) { d.op(TURBO_OP_GATHER_ROWS).u.gather_rows.out = d.op(TURBO_OP_GATHER_ROWS).u.gather_rows.in; },
      [](Damaged& d) { d.op(TURBO_OP_TOP_K).u.top_k.k = 0; },
      [](Damaged& d) { d.op(TURBO_OP_TOP_K).u.top_k.k = 1000; },
      [](Damaged& d) { d.op(TURBO_OP_TOP_K).u.top_k.values = d.op(TURBO_OP_TOP_K).u.top_k.ids; }};
  for (size_t i = 0; i < damages.size(); ++i) {
    Damaged damaged(pack, weights);
    damages[i](damaged);
    const turbo_status status = damaged.compile();
    EXPECT_TRUE(status == TURBO_INVALID_ARGUMENT || status == TURBO_UNSUPPORTED) << "damage " << i << " gave " << status;
    EXPECT_NE(std::string(pack.world.error.message).find(": "), std::string::npos) << "damage " << i;
  }
}

// Random words in random ops: compile answers, and what compiles also runs.
TEST(Hostile, RandomDamageNeverCrashes) {
  const DecoderWeights weights{DecoderShape{}};
  PackDecoder pack(weights, 2, "", 1, 1);
  const Damaged good(pack, weights);
  std::mt19937 random(4);
  uint32_t compiled = 0;
  for (int i = 0; i < 1500; ++i) {
    Damaged bad = good;
    bad.program.buffers = bad.buffers.data();
    bad.program.ops = bad.ops.data();
    for (uint32_t n = 1 + random() % 3; n; --n) {
      turbo_op& op = bad.ops[random() % bad.ops.size()];
      const uint32_t small = random() % 14;
      switch (random() % 4) {
        case 0: op.kind = small; break;
        case 1: std::swap(op, bad.ops[random() % bad.ops.size()]); break;
        case 2: bad.buffers[random() % bad.buffers.size()].width = random() % 200; break;
        default: {  // past the handles, which an engine cannot forge
          uint32_t* words = reinterpret_cast<uint32_t*>(&op.u);
          words[4 + random() % 4] = random() % 3 ? small : random();
        }
      }
    }
    turbo_plan* plan = pack.world.compile(bad.program);
    if (!plan || pack.world.status != TURBO_OK) continue;
    ++compiled;
    turbo_step_table* t = pack.table;
    t->n_rows = t->n_seqs = 1;
    t->n_logit_rows = 1;
    t->token[0] = t->position[0] = t->slot[0] = t->row_seq[0] = t->path_length[0] = t->logit_row[0] = 0;
    pack.world.run(plan, t);
    pack.world.pack->plan_free(pack.world.pack.self(), plan);
  }
  EXPECT_GT(compiled, 10u);
}

namespace {

// Rows at 64.. that read block 0, not committed, in open form.
void open_second_block(turbo_step_table* t) {
  t->open_uncommitted = 1;
  for (int i = 0; i < 3; ++i) {
    t->position[i] = t->slot[i] = 64 + i;
    t->path_length[i] = 0;
  }
}

}  // namespace

TEST(Hostile, StepTablesAreRefused) {
  for (const char* codec : {"f16", "two_form"}) {
    DecoderShape shape;
    shape.codec = codec;
    const DecoderWeights weights(shape);
    PackDecoder pack(weights, 2, "", 2, 1);
    const auto fill = [&](turbo_step_table* t) {
      t->n_rows = 3;
      t->n_seqs = 2;
      t->n_logit_rows = 2;
      for (int i = 0; i < 3; ++i) {
        t->token[i] = 1;
        t->position[i] = t->slot[i] = i;
        t->row_seq[i] = 0;
        t->path_length[i] = 0;
        t->logit_row[i] = 0;
      }
      t->committed[0] = t->committed[1] = 0;
      // row 2 on a path over slots 0, 1, 2
      t->path_length[2] = 3;
      for (int i = 0; i < 3; ++i) t->path[2 * PackDecoder::kPath + i] = i;
    };
    fill(pack.table);
    ASSERT_EQ(pack.world.run(pack.plan, pack.table), TURBO_OK) << pack.world.error.message;
    const turbo_step_table made = *pack.table;
    const bool two = std::string(codec) == "two_form";
    std::vector<int32_t> own_tokens(100, 1);
    std::vector<std::function<void(turbo_step_table*)>> damages = {
        [](auto* t) { t->n_rows = PackDecoder::kMaxRows + 1; }, [](auto* t) { t->n_rows = UINT32_MAX; },
        [](auto* t) { t->n_seqs = 3; },                         [](auto* t) { t->n_logit_rows = 1000; },
        [](auto* t) { t->logit_row[1] = 3; },                   [](auto* t) { t->logit_row[1] = -1; },
        [](auto* t) { t->token[1] = 40; },                      [](auto* t) { t->token[1] = -1; },
        [](auto* t) { t->position[0] = -1; },                   [](auto* t) { t->position[0] = INT32_MAX; },
        [](auto* t) { t->slot[0] = t->position[0] = 64 * 8; },  [](auto* t) { t->slot[0] = -5; },
        [](auto* t) { t->slot[0] = 1; },                        [](auto* t) { t->row_seq[0] = 2; },
        [](auto* t) { t->row_seq[0] = -1; },                    [](auto* t) { t->committed[0] = -1; },
        [](auto* t) { t->path_length[2] = 2; },                 [](auto* t) { t->path_length[2] = -1; },
        [](auto* t) { t->path_length[2] = 1000; },              [](auto* t) { t->path[2 * PackDecoder::kPath + 2] = 7; },
        [](auto* t) { t->path[2 * PackDecoder::kPath] = 64 * 8; }, [](auto* t) { t->path[2 * PackDecoder::kPath] = INT32_MIN; },
        [](auto* t) { t->row_capacity = 100000; },              [&](auto* t) { t->token = own_tokens.data(); },
        [&](auto* t) { (two ? t->open_table : t->block_table)[0] = -1; },
        [&](auto* t) { (two ? t->open_table : t->block_table)[0] = 16; },
        [&](auto* t) { (two ? t->open_table : t->block_table)[0] = INT32_MAX; },
        [&](auto* t) { t->slot[1] = t->position[1] = 130; (two ? t->open_table : t->block_table)[1] = -1; },
        [](auto* t) { t->path_length[2] = 0; t->slot[2] = t->position[2] = 1; }};  // two rows, one place
    if (two) damages.push_back([](auto* t) { open_second_block(t); t->open_table[0] = -1; });
    for (size_t i = 0; i < damages.size(); ++i) {
      std::vector<int32_t> blocks(made.block_table, made.block_table + 16), open(made.open_table, made.open_table + 16);
      fill(pack.table);
      damages[i](pack.table);
      EXPECT_EQ(pack.world.run(pack.plan, pack.table), TURBO_INVALID_ARGUMENT) << codec << " damage " << i << ": " << pack.world.error.message;
      *pack.table = made;
      std::copy(blocks.begin(), blocks.end(), pack.table->block_table);
      std::copy(open.begin(), open.end(), pack.table->open_table);
    }
    fill(pack.table);
    EXPECT_EQ(pack.world.run(pack.plan, pack.table), TURBO_OK);
    open_second_block(pack.table);
    EXPECT_EQ(pack.world.run(pack.plan, pack.table), TURBO_OK) << pack.world.error.message;
    pack.table->committed[0] = INT32_MAX;  // more than there is: its own block stays open
    EXPECT_EQ(pack.world.run(pack.plan, pack.table), TURBO_OK) << pack.world.error.message;
    pack.table->committed[0] = 0;
    pack.table->open_uncommitted = 0;
    EXPECT_EQ(pack.world.run(pack.plan, reinterpret_cast<turbo_step_table*>(0x1000)), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(pack.world.run(reinterpret_cast<turbo_plan*>(0x1000), pack.table), TURBO_INVALID_ARGUMENT);
  }
}

TEST(Hostile, NanFromAModelIsAnErrorNotAHang) {
  DecoderWeights weights{DecoderShape{}};
  weights.embed.values[5] = NAN;
  PackDecoder pack(weights, 2, "", 1, 1);
  pack.table->n_rows = pack.table->n_seqs = pack.table->n_logit_rows = 1;
  pack.table->token[0] = 0;
  EXPECT_EQ(pack.world.run(pack.plan, pack.table), TURBO_CORRUPT_INPUT);
  pack.table->token[0] = 1;
  EXPECT_EQ(pack.world.run(pack.plan, pack.table), TURBO_OK);
}

TEST(Hostile, PoolsAndTablesOfAbsurdSizeAreRefused) {
  PackWorld world(1);
  turbo_kv_bytes bytes{sizeof(turbo_kv_bytes)};
  turbo_kv_pool* pool = nullptr;
  for (const turbo_kv_pool_desc& desc : {turbo_kv_pool_desc{sizeof(turbo_kv_pool_desc), 0, 1, 64, 64, 1, 0}, {sizeof(turbo_kv_pool_desc), 1, 0, 64, 64, 1, 0},
                                         {sizeof(turbo_kv_pool_desc), 1, 1, 0, 64, 1, 0}, {sizeof(turbo_kv_pool_desc), 1, 1, 64, UINT32_MAX, 1, 0},
                                         {sizeof(turbo_kv_pool_desc), UINT32_MAX, 1, 64, 64, 1, 0}, {4, 1, 1, 64, 64, 1, 0}}) {
    EXPECT_NE(world.pack->kv_bytes(world.pack.self(), &desc, &bytes, &world.error), TURBO_OK);
    EXPECT_NE(world.pack->kv_create(world.pack.self(), &desc, &pool, &world.error), TURBO_OK);
  }
  turbo_step_table* table = nullptr;
  for (const turbo_step_caps& caps : {turbo_step_caps{sizeof(turbo_step_caps), 0, 1, 1, 1, 1}, {sizeof(turbo_step_caps), UINT32_MAX, 1, 1, 1, 1},
                                      {sizeof(turbo_step_caps), 1, 65536, 1, UINT32_MAX, 1}, {sizeof(turbo_step_caps), 65536, 1, 1, 1, UINT32_MAX}})
    EXPECT_EQ(world.pack->table_create(world.pack.self(), &caps, &table, &world.error), TURBO_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace turbo::test
