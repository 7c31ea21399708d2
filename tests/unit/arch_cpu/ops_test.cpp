// Single ops against plain loops, on every ISA, and what the pack answers about itself.
#include "decoder.h"

namespace turbo::test {
namespace {

std::vector<std::string> isas() { return usable_isas(pack_library().component("cpu")); }

std::vector<float> numbers(size_t n, uint32_t seed, float scale = 2.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(n);
  for (float& x : out) x = normal(random) * scale;
  return out;
}

// A program on input buffers, run with n rows.
class OpRun {
 public:
  OpRun(uint32_t threads, const std::string& isa, uint32_t rows) : world(threads, "f32", isa), builder("op", rows, rows, nullptr), rows_(rows) {}
  uint32_t input(const std::vector<float>& values) {
    inputs_.push_back(values);
    return builder.input("in", values.size() / rows_);
  }
  uint32_t output(uint64_t width, uint32_t domain = TURBO_ROWS_STEP) { return builder.buffer("out", width, domain, true); }
  void go(const turbo_op* extra = nullptr) {
    turbo_program program = builder.program();
    std::vector<turbo_op> ops(program.ops, program.ops + program.n_ops);
    if (extra) ops.push_back(*extra);
    program.ops = ops.data();
    program.n_ops = static_cast<uint32_t>(ops.size());
    plan = world.compile(program);
    ASSERT_NE(plan, nullptr) << world.error.message;
    table = world.table(rows_);
    table->n_rows = table->n_logit_rows = rows_;
    for (uint32_t i = 0; i < rows_; ++i) {
      table->position[i] = static_cast<int32_t>(3 * i);
      table->token[i] = static_cast<int32_t>(i);
      table->logit_row[i] = static_cast<int32_t>(rows_ - 1 - i);
    }
    for (uint32_t i = 0; i < inputs_.size(); ++i) std::copy(inputs_[i].begin(), inputs_[i].end(), world.buffer(plan, i));
    ASSERT_EQ(world.run(plan, table), TURBO_OK) << world.error.message;
  }
  std::vector<float> values(uint32_t buffer, size_t n) {
    const float* data = world.buffer(plan, buffer);
    return {data, data + n};
  }
  PackWorld world;
  ProgramBuilder builder;
  turbo_plan* plan = nullptr;
  turbo_step_table* table = nullptr;

 private:
  uint32_t rows_;
  std::vector<std::vector<float>> inputs_;
};

void expect_same(const std::vector<float>& got, const std::vector<float>& want, const std::string& where) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_TRUE(same_bits(&got[i], &want[i], 1)) << where << " element " << i << ": " << got[i] << " " << want[i];
}

TEST(Ops, RmsNormOfWholeRowsAndGroups) {
  for (const std::string& isa : isas())
    for (const auto& [width, groups] : {std::pair{37u, 1u}, std::pair{64u, 4u}, std::pair{60u, 3u}, std::pair{5u, 5u}}) {
      const auto x = numbers(3 * width, width);
      const Matrix weight{1, width / groups, numbers(width / groups, 9)};
      OpRun run(2, isa, 3);
      const uint32_t in = run.input(x), out = run.output(width);
      run.builder.rms_norm(run.world.weight(weight.values, 1, weight.cols), in, out, 1e-6f, groups);
      run.go();
      std::vector<float> want;
      for (uint32_t r = 0; r < 3; ++r) {
        const auto row = PlainDecoder::norm(weight, {x.begin() + r * width, x.begin() + (r + 1) * width}, groups);
        want.insert(want.end(), row.begin(), row.end());
      }
      expect_same(run.values(out, want.size()), want, isa);
    }
}

TEST(Ops, ElementwiseOpsOnOddWidths) {
  for (const std::string& isa : isas())
    for (const uint32_t act : {TURBO_ACT_SILU, TURBO_ACT_GELU_TANH}) {
      const uint32_t width = 53;
      auto a = numbers(2 * width, 1, 8.0f), b = numbers(2 * width, 2);
      a[0] = -100.0f;
      a[1] = 100.0f;
      a[2] = -0.0f;
      OpRun run(2, isa, 2);
      const uint32_t ia = run.input(a), ib = run.input(b), sum = run.output(width), gated = run.output(width), pair = run.output(2 * width);
      run.builder.add(ia, ib, sum);
      run.builder.gated_act(ia, ib, gated, act);
      run.builder.concat(ia, ib, pair);
      run.go();
      std::vector<float> want_sum, want_gated, want_pair;
      for (size_t i = 0; i < a.size(); ++i) {
        want_sum.push_back(a[i] + b[i]);
        want_gated.push_back(PlainDecoder::activate(act, a[i]) * b[i]);
        if (act == TURBO_ACT_GELU_TANH) {
          const double x = a[i], exact = 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
          EXPECT_NEAR(PlainDecoder::activate(act, a[i]), exact, 2e-6 * (1 + std::fabs(exact)));
        }
      }
      for (uint32_t r = 0; r < 2; ++r)
        for (const auto* source : {&a, &b}) want_pair.insert(want_pair.end(), source->begin() + r * width, source->begin() + (r + 1) * width);
      expect_same(run.values(sum, a.size()), want_sum, "add " + isa);
      expect_same(run.values(gated, a.size()), want_gated, "gated " + isa);
      expect_same(run.values(pair, 2 * a.size()), want_pair, "concat " + isa);
    }
}

TEST(Ops, RopeRotatesTheFirstDimsOfEachHead) {
  for (const std::string& isa : isas())
    for (const uint32_t style : {TURBO_ROPE_HALVES, TURBO_ROPE_INTERLEAVED}) {
      const uint32_t heads = 3, dim = 40, dims = 36;
      auto x = numbers(4 * heads * dim, 3);
      const auto frequencies = numbers(dims / 2, 4);
      OpRun run(2, isa, 4);
      const uint32_t in = run.input(x);
      run.builder.rope({run.world.weight(frequencies, 1, dims / 2), in, heads, dim, dims, style, 1.0f});
      run.go();
      for (uint32_t r = 0; r < 4; ++r)
        for (uint32_t h = 0; h < heads; ++h) PlainDecoder::rotate(frequencies, &x[(r * heads + h) * dim], 3 * r, style);
      expect_same(run.values(in, x.size()), x, isa);
    }
}

TEST(Ops, EmbedMatmulBiasGatherAndTap) {
  const auto table = numbers(10 * 33, 1), matrix = numbers(21 * 33, 2), bias = numbers(21, 3), other = numbers(33 * 21, 4);
  OpRun run(3, "", 3);
  const uint32_t x = run.output(33), y = run.output(21), z = run.output(33), picked = run.output(21, TURBO_ROWS_LOGIT), tapped = run.output(33);
  run.builder.embed(run.world.weight(table, 10, 33), x);
  run.builder.tap(x, tapped);
  run.builder.matmul(run.world.weight(matrix, 21, 33), x, y, run.world.weight(bias, 1, 21));
  run.builder.matmul(run.world.weight(other, 33, 21), y, z);
  run.builder.add(x, z, x);  // the tap keeps the embedding
  run.builder.gather_rows(y, picked);
  run.go();
  std::vector<float> want_y;
  for (uint32_t r = 0; r < 3; ++r)
    for (uint32_t o = 0; o < 21; ++o) want_y.push_back(turbo_dot_f32(&matrix[o * 33], &table[r * 33], 33) + bias[o]);
  expect_same(run.values(tapped, 99), {table.begin(), table.begin() + 99}, "tap");
  expect_same(run.values(y, 63), want_y, "matmul");
  std::vector<float> want_picked;
  for (uint32_t r = 3; r-- > 0;) want_picked.insert(want_picked.end(), want_y.begin() + r * 21, want_y.begin() + (r + 1) * 21);
  expect_same(run.values(picked, 63), want_picked, "gather");
}

TEST(Ops, TopKIsSortedWithTiesToTheLowerIdAndNanLast) {
  for (const std::string& isa : isas())
    for (const uint32_t k : {1u, 2u, 7u, 40u, 333u}) {
      const uint32_t width = 333;
      auto x = numbers(2 * width, k);
      for (size_t i = 0; i < x.size(); ++i) x[i] = std::round(x[i]);  // many ties
      x[5] = x[17] = std::nanf("");
      x[100] = INFINITY;
      x[101] = -INFINITY;
      for (uint32_t i = 0; i < width; ++i) x[width + i] = static_cast<float>(i) - 1000.0f;  // rising and negative: every value enters
      OpRun run(2, isa, 2);
      const uint32_t in = run.input(x), ids = run.output(k), best = run.output(k);
      turbo_op op{};
      op.struct_size = sizeof op;
      op.kind = TURBO_OP_TOP_K;
      op.u.top_k = {in, ids, best, k};
      run.go(&op);
      const auto got_ids = run.values(ids, 2 * k), got = run.values(best, 2 * k);
      for (uint32_t r = 0; r < 2; ++r) {
        std::vector<uint32_t> order(width);
        for (uint32_t i = 0; i < width; ++i) order[i] = i;
        const auto key = [&](uint32_t i) { return x[r * width + i] == x[r * width + i] ? x[r * width + i] : -INFINITY; };
        std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
        for (uint32_t i = 0; i < k; ++i) {
          uint32_t id;
          std::memcpy(&id, &got_ids[r * k + i], 4);
          ASSERT_EQ(id, order[i]) << isa << " k " << k << " row " << r << " rank " << i;
          ASSERT_TRUE(same_bits(&got[r * k + i], &x[r * width + id], 1));
        }
      }
    }
}

TEST(Ops, InputsChangeBetweenRunsAndZeroRowsAreFine) {
  OpRun run(2, "", 2);
  const uint32_t in = run.input({1, 2, 3, 4}), out = run.output(2);
  run.builder.add(in, in, out);
  run.go();
  run.world.buffer(run.plan, in)[0] = 50;
  ASSERT_EQ(run.world.run(run.plan, run.table), TURBO_OK);
  EXPECT_EQ(run.values(out, 4), (std::vector<float>{100, 4, 6, 8}));
  run.table->n_rows = run.table->n_logit_rows = 0;
  EXPECT_EQ(run.world.run(run.plan, run.table), TURBO_OK);
}

TEST(Pack, SelfTestPassesOnEveryIsaAndThreadCount) {
  for (const std::string& isa : isas())
    for (const uint32_t threads : {1u, 2u, 4u}) {
      PackWorld world(threads, "f32", isa);
      ASSERT_TRUE(world.pack.ok()) << world.pack.message();
      EXPECT_EQ(world.pack->self_test(world.pack.self(), &world.error), TURBO_OK) << world.error.message;
      turbo_device_info info{sizeof(turbo_device_info)};
      ASSERT_EQ(world.pack->device(world.pack.self(), &info, &world.error), TURBO_OK);
      EXPECT_EQ(info.threads, threads);
      EXPECT_EQ(std::string(info.isa).rfind(isa, 0), 0u);
      EXPECT_GT(info.memory_bytes, 0u);
    }
}

TEST(Pack, IsaRequestsThatCannotBeMetAreUnusableWithAReason) {
  const turbo_component* cpu = pack_library().component("cpu");
  ASSERT_NE(cpu, nullptr);
  setenv("TURBO_CPU_ISA", "mmx", 1);
  turbo_probe_facts facts{sizeof(turbo_probe_facts), TURBO_TIER_CPU, nullptr, nullptr};
  turbo_probe_result result{sizeof(turbo_probe_result)};
  ASSERT_EQ(cpu->probe(bare_host(), &facts, &result, nullptr), TURBO_OK);
  EXPECT_EQ(result.score, 0);
  EXPECT_NE(std::string(result.reason).find("mmx"), std::string::npos);
  EXPECT_EQ(PackWorld(1, "two_form", "mmx").pack.status(), TURBO_UNSUPPORTED);
}

TEST(Pack, WeightsAreRepackedOnceInAlignedRangesAndBadOnesRefused) {
  PackWorld world(3);
  const auto values = numbers(1003 * 16, 1);
  const turbo_weight* w = world.weight(values, 1003, 16);
  EXPECT_EQ(world.host.format.repacked_rows, 1003u);
  EXPECT_EQ(world.host.format.misuse, 0u);
  EXPECT_EQ(world.pack->weight_bytes(world.pack.self(), w), 1003u * 16 * 4);
  EXPECT_EQ(world.pack->weight_in_place(world.pack.self(), w), 0u);
  turbo_weight* none = nullptr;
  const auto load = [&](uint32_t type, uint64_t rows, uint64_t cols, const void* data, uint64_t bytes, turbo_shard shard = {0, 1, 0}) {
    const turbo_weight_source source{sizeof source, type, "bad", rows, cols, data, bytes, shard};
    return world.pack->weight_load(world.pack.self(), &source, &none, &world.error);
  };
  EXPECT_EQ(load(77, 4, 4, values.data(), 64), TURBO_UNSUPPORTED);
  EXPECT_EQ(load(TURBO_TYPE_F32, 8, 16, values.data(), 8 * 16 * 4 - 1), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(load(TURBO_TYPE_F32, 1, 16, values.data(), 63), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(load(TURBO_TYPE_Q8_0, 1, 32, values.data(), 34), TURBO_UNSUPPORTED);
  EXPECT_EQ(load(TURBO_TYPE_F32, 0, 16, values.data(), 64), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(load(TURBO_TYPE_F32, uint64_t{1} << 40, uint64_t{1} << 40, values.data(), 64), TURBO_CORRUPT_INPUT);
  EXPECT_EQ(load(TURBO_TYPE_F32, 4, 4, nullptr, 64), TURBO_INVALID_ARGUMENT);
  EXPECT_EQ(load(TURBO_TYPE_F32, 4, 4, values.data(), 64, {0, 2, 0}), TURBO_UNSUPPORTED);
}

TEST(Pack, KvBlocksReadWriteCopyAndRefuseBadIds) {
  for (const char* codec : {"f16", "two_form"}) {
    PackWorld world(1, codec);
    const turbo_kv_pool_desc desc{sizeof desc, 3, 2, 24, 40, 5, 4};
    turbo_kv_bytes bytes{sizeof(turbo_kv_bytes)};
    ASSERT_EQ(world.pack->kv_bytes(world.pack.self(), &desc, &bytes, &world.error), TURBO_OK);
    const bool two = std::string(codec) == "two_form";
    EXPECT_EQ(bytes.open_is_packed, two ? 0u : 1u);
    EXPECT_EQ(bytes.block_bytes, two ? 3u * 2 * 64 * (24 + 40) * 2 : 3u * 2 * 64 * (64 + 128));
    EXPECT_EQ(bytes.open_block_bytes, two ? 3u * 2 * 64 * (24 + 40) * 4 : 0u);
    turbo_kv_pool* pool = nullptr;
    ASSERT_EQ(world.pack->kv_create(world.pack.self(), &desc, &pool, &world.error), TURBO_OK);
    std::vector<uint8_t> saved(bytes.block_bytes), back(bytes.block_bytes);
    for (size_t i = 0; i < saved.size(); ++i) saved[i] = static_cast<uint8_t>(i * 7);
    const auto* p = world.pack.table();
    void* self = world.pack.self();
    ASSERT_EQ(p->kv_write(self, pool, 1, TURBO_KV_FORM_PACKED, saved.data(), saved.size(), &world.error), TURBO_OK);
    ASSERT_EQ(p->kv_copy(self, pool, 1, 4, TURBO_KV_FORM_PACKED, &world.error), TURBO_OK);
    ASSERT_EQ(p->kv_read(self, pool, 4, TURBO_KV_FORM_PACKED, back.data(), back.size(), &world.error), TURBO_OK);
    EXPECT_EQ(saved, back);
    EXPECT_EQ(p->kv_read(self, pool, 4, TURBO_KV_FORM_PACKED, back.data(), back.size() - 1, &world.error), TURBO_INVALID_ARGUMENT);
    for (const int32_t id : {-1, 5, INT32_MAX, INT32_MIN}) {
      EXPECT_EQ(p->kv_copy(self, pool, id, 0, TURBO_KV_FORM_PACKED, &world.error), TURBO_INVALID_ARGUMENT);
      EXPECT_EQ(p->kv_copy(self, pool, 0, id, TURBO_KV_FORM_OPEN, &world.error), TURBO_INVALID_ARGUMENT);
      const turbo_kv_place bad{sizeof bad, 0, id, id}, good{sizeof good, 0, 0, 0};
      EXPECT_EQ(p->kv_move_row(self, pool, &bad, &good, &world.error), TURBO_INVALID_ARGUMENT);
      EXPECT_EQ(p->kv_move_row(self, pool, &good, &bad, &world.error), TURBO_INVALID_ARGUMENT);
      EXPECT_EQ(p->kv_pack(self, pool, 0, id, &world.error), TURBO_INVALID_ARGUMENT);
    }
    const turbo_kv_place past{sizeof past, 64, 0, 0}, first{sizeof first, 0, 0, 0};
    EXPECT_EQ(p->kv_move_row(self, pool, &past, &first, &world.error), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(p->kv_copy(self, pool, 0, 1, 7, &world.error), TURBO_INVALID_ARGUMENT);
    EXPECT_EQ(p->kv_pack(self, pool, 0, 0, &world.error), two ? TURBO_OK : TURBO_INVALID_ARGUMENT);
    p->kv_free(self, pool);
    EXPECT_EQ(p->kv_copy(self, pool, 0, 1, 0, &world.error), TURBO_INVALID_ARGUMENT);
  }
}

}  // namespace
}  // namespace turbo::test
