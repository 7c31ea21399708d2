// The pack in this process, over the fiber runtime, with components of a test's choice; and a small decoder on it.
#pragma once

#include <gtest/gtest.h>
#include <turbo/program.hpp>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "pack.h"
#include "runtime/runtime_fiber.h"
#include "whole.h"

namespace turbo::test {

class World {
 public:
  using Options = std::map<std::string, int64_t>;

  explicit World(Whole::Takes takes = {}, Options options = {}) : options_(std::move(options)) {
    host_ = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, this, &query};
    registry_ = {sizeof registry_, 0, this,
                 [](void* ctx, uint32_t type, const turbo_weight_format** format, void** self, turbo_error* error) -> turbo_status {
                   return guarded(error, [&] {
                     const Format f = of(ctx).components->format(type);
                     *format = f.host;
                     *self = f.self;
                   });
                 },
                 [](void* ctx, uint32_t side, uint32_t layer, const turbo_kv_codec** codec, void** self, turbo_error* error) -> turbo_status {
                   return guarded(error, [&] {
                     const Codec c = of(ctx).components->codec(side, layer);
                     *codec = c.host;
                     *self = c.self;
                   });
                 },
                 [](void* ctx, void*, const char* id) -> const void* {
                   if (std::strcmp(id, TURBO_WEIGHT_FORMAT_DEVICE_DRAFT) == 0) return of(ctx).components->format(TURBO_TYPE_F32).device;
                   if (std::strcmp(id, TURBO_KV_CODEC_DEVICE_DRAFT) == 0) return of(ctx).components->codec(0, 0).device;
                   return nullptr;
                 }};
    config_ = {sizeof config_, 0, this, [](void*, const char*, const char**) -> turbo_status { return TURBO_NOT_FOUND; },
               [](void* ctx, const char* key, int64_t* value) -> turbo_status { return option(ctx, key, value); },
               [](void*, const char*, double*) -> turbo_status { return TURBO_NOT_FOUND; },
               [](void* ctx, const char* key, uint32_t* value) -> turbo_status { return option(ctx, key, value); }};
    log_ = {sizeof log_, 0, this, [](void* ctx, uint32_t, const char* text) { of(ctx).logged.push_back(text); }};
    pack = std::make_unique<Pack>(Host(&host_));
    components = std::make_unique<Whole>(*pack->device_table(), takes);
  }
  ~World() {
    // The pack's handles go first, the components' modules before the device.
    clear();
    components.reset();
    pack.reset();
    EXPECT_EQ(hip::check_fiber_memory(), "");
  }
  World(const World&) = delete;

  const turbo_arch_pack& api() const { return *static_cast<const turbo_arch_pack*>(Pack::interface(TURBO_ARCH_PACK_DRAFT)); }
  void* self() const { return pack.get(); }

  const turbo_weight* weight(const std::vector<float>& values, uint64_t rows, uint64_t cols, const char* name = "w") {
    const turbo_weight_source source{sizeof(turbo_weight_source), TURBO_TYPE_F32, name, rows, cols, values.data(), values.size() * 4, {0, 1, 0}};
    turbo_weight* w = nullptr;
    EXPECT_EQ(api().weight_load(self(), &source, &w, &error), TURBO_OK) << error.message;
    weights_.push_back(w);
    return w;
  }
  turbo_kv_pool* pool(const turbo_kv_pool_desc& desc) {
    turbo_kv_pool* p = nullptr;
    EXPECT_EQ(api().kv_create(self(), &desc, &p, &error), TURBO_OK) << error.message;
    pools_.push_back(p);
    return p;
  }
  turbo_step_table* table(uint32_t rows, uint32_t sequences = 1, uint32_t blocks = 1, uint32_t path = 0) {
    turbo_step_caps caps{};
    caps.struct_size = sizeof caps;
    caps.rows = caps.logit_rows = rows;
    caps.sequences = sequences;
    caps.blocks_per_sequence = blocks;
    caps.path = path;
    turbo_step_table* t = nullptr;
    EXPECT_EQ(api().table_create(self(), &caps, &t, &error), TURBO_OK) << error.message;
    tables_.push_back(t);
    return t;
  }
  turbo_plan* compile(const turbo_program& program) {
    turbo_plan* plan = nullptr;
    status = api().compile(self(), &program, &plan, &error);
    if (plan) plans_.push_back(plan);
    return plan;
  }
  turbo_status run(turbo_plan* plan, turbo_step_table* t) {
    status = api().run(self(), plan, t, &error);
    if (status == TURBO_OK) status = api().sync(self(), &error);
    return status;
  }
  std::vector<float> rows(turbo_plan* plan, uint32_t buffer, uint64_t n, uint64_t width, uint64_t begin = 0) {
    std::vector<float> values(n * width);
    EXPECT_EQ(api().plan_read(self(), plan, buffer, begin, n, values.data(), &error), TURBO_OK) << error.message;
    return values;
  }
  void drop(turbo_step_table* t) {
    std::erase(tables_, t);
    api().table_free(self(), t);
  }
  void clear() {
    for (turbo_plan* plan : plans_) api().plan_free(self(), plan);
    for (turbo_step_table* t : tables_) api().table_free(self(), t);
    for (turbo_kv_pool* p : pools_) api().kv_free(self(), p);
    for (turbo_weight* w : weights_) api().weight_free(self(), w);
    plans_.clear();
    tables_.clear();
    pools_.clear();
    weights_.clear();
  }

  std::vector<std::string> logged;
  std::unique_ptr<Pack> pack;
  std::unique_ptr<Whole> components;
  turbo_error error{};
  turbo_status status = TURBO_OK;

 private:
  static World& of(void* ctx) { return *static_cast<World*>(ctx); }
  template <typename T>
  static turbo_status option(void* ctx, const char* key, T* value) {
    const auto found = of(ctx).options_.find(key);
    if (found == of(ctx).options_.end()) return TURBO_NOT_FOUND;
    *value = static_cast<T>(found->second);
    return TURBO_OK;
  }
  static const void* query(const turbo_host* host, const char* id) {
    const World& self = *static_cast<const World*>(host->ctx);
    if (std::strcmp(id, TURBO_HOST_REGISTRY_DRAFT) == 0) return &self.registry_;
    if (std::strcmp(id, TURBO_HOST_CONFIG) == 0) return &self.config_;
    if (std::strcmp(id, TURBO_HOST_LOG) == 0) return &self.log_;
    return nullptr;
  }

  Options options_;
  turbo_host host_{};
  turbo_host_registry registry_{};
  turbo_host_config config_{};
  turbo_host_log log_{};
  std::vector<turbo_weight*> weights_;
  std::vector<turbo_kv_pool*> pools_;
  std::vector<turbo_step_table*> tables_;
  std::vector<turbo_plan*> plans_;
};

/// A decoder of the Qwen3 kind, with biases too.
struct Shape {
  uint32_t heads = 4, kv_heads = 2, head_dim = 16, layers = 2, width = 48, ff = 72, vocabulary = 40;
  uint32_t style = TURBO_ROPE_HALVES, act = TURBO_ACT_SILU;
  bool bias = true, tap_attention = false;
};

/// A row of a step. Without a path its slot is its position.
struct Row {
  uint32_t seq;
  int32_t token, position;
  std::vector<int32_t> path;  // slots past the committed ones, its own last
};

class Decoder {
 public:
  static constexpr uint32_t kBlocks = 6, kPath = 8;

  Decoder(World& world, const Shape& shape, uint32_t max_rows, uint32_t n_sequences)
      : world_(world), shape_(shape), committed(n_sequences, 0) {
    const uint32_t blocks = n_sequences * kBlocks;
    pool = world.pool({sizeof(turbo_kv_pool_desc), shape.layers, shape.kv_heads, shape.head_dim, shape.head_dim, blocks, 0});
    table = world.table(max_rows, n_sequences, kBlocks, kPath);
    std::vector<int32_t> ids(blocks);
    for (uint32_t i = 0; i < blocks; ++i) ids[i] = static_cast<int32_t>(i);
    std::shuffle(ids.begin(), ids.end(), random_);
    std::copy(ids.begin(), ids.end(), table->block_table);
    build(max_rows);
  }

  /// Logits of every row.
  std::vector<float> step(const std::vector<Row>& rows) {
    fill(rows);
    EXPECT_EQ(world_.run(plan, table), TURBO_OK) << world_.error.message;
    return world_.rows(plan, logits, rows.size(), shape_.vocabulary);
  }
  void fill(const std::vector<Row>& rows) {
    table->n_rows = table->n_logit_rows = static_cast<uint32_t>(rows.size());
    table->n_seqs = static_cast<uint32_t>(committed.size());
    for (size_t s = 0; s < committed.size(); ++s) table->committed[s] = committed[s];
    for (size_t i = 0; i < rows.size(); ++i) {
      table->token[i] = rows[i].token;
      table->position[i] = rows[i].position;
      table->row_seq[i] = static_cast<int32_t>(rows[i].seq);
      table->slot[i] = rows[i].path.empty() ? rows[i].position : rows[i].path.back();
      table->path_length[i] = static_cast<int32_t>(rows[i].path.size());
      std::copy(rows[i].path.begin(), rows[i].path.end(), table->path + i * kPath);
      table->logit_row[i] = static_cast<int32_t>(rows.size() - 1 - i);
    }
  }

  World& world_;
  Shape shape_;
  std::mt19937 random_{5};
  std::vector<int32_t> committed;
  turbo_kv_pool* pool = nullptr;
  turbo_step_table* table = nullptr;
  turbo_plan* plan = nullptr;
  uint32_t logits = 0, tapped = 0;

 private:
  const turbo_weight* matrix(uint64_t rows, uint64_t cols) {
    std::vector<float> values(rows * cols);
    const float scale = rows == 1 ? 1.0f : 1.6f / std::sqrt(static_cast<float>(cols));
    std::uniform_real_distribution<float> uniform(-1.7f, 1.7f);
    for (float& x : values) x = uniform(random_) * scale;
    return world_.weight(values, rows, cols);
  }

  void build(uint32_t max_rows) {
    random_.seed(9);
    const Shape& s = shape_;
    const uint32_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
    ProgramBuilder p("decoder", max_rows, max_rows, pool);
    const uint32_t x = p.buffer("x", s.width), h = p.buffer("h", s.width), q = p.buffer("q", q_width), k = p.buffer("k", kv_width), v = p.buffer("v", kv_width),
                   a = p.buffer("a", q_width), projected = p.buffer("projected", s.width), gate = p.buffer("gate", s.ff), up = p.buffer("up", s.ff),
                   gated = p.buffer("gated", s.ff), last = p.buffer("last", s.width, TURBO_ROWS_LOGIT);
    logits = p.buffer("logits", s.vocabulary, TURBO_ROWS_LOGIT, true);
    tapped = p.buffer("tapped", s.width, TURBO_ROWS_STEP, true);
    std::vector<float> turns(s.head_dim / 2);
    for (size_t i = 0; i < turns.size(); ++i) turns[i] = std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(s.head_dim));
    const turbo_weight* frequencies = world_.weight(turns, 1, turns.size());
    p.embed(matrix(s.vocabulary, s.width), x);
    for (uint32_t l = 0; l < s.layers; ++l) {
      p.rms_norm(matrix(1, s.width), x, h, 1e-6f);
      p.matmul(matrix(q_width, s.width), h, q, s.bias ? matrix(1, q_width) : nullptr);
      p.matmul(matrix(kv_width, s.width), h, k);
      p.matmul(matrix(kv_width, s.width), h, v);
      p.rms_norm(matrix(1, s.head_dim), q, q, 1e-6f, s.heads);
      p.rms_norm(matrix(1, s.head_dim), k, k, 1e-6f, s.kv_heads);
      p.rope({frequencies, q, s.heads, s.head_dim, s.head_dim, s.style, 1.0f});
      p.rope({frequencies, k, s.kv_heads, s.head_dim, s.head_dim, s.style, 1.0f});
      p.kv_append(l, k, v);
      if (s.tap_attention && l == 0) p.tap(k, p.buffer("keys", kv_width, TURBO_ROWS_STEP, true));
      p.attend({l, q, a, s.heads, 1.0f / std::sqrt(static_cast<float>(s.head_dim))});
      p.matmul(matrix(s.width, q_width), a, projected);
      p.add(x, projected, x);
      p.rms_norm(matrix(1, s.width), x, h, 1e-6f);
      p.matmul(matrix(s.ff, s.width), h, gate);
      p.matmul(matrix(s.ff, s.width), h, up);
      p.gated_act(gate, up, gated, s.act);
      p.matmul(matrix(s.width, s.ff), gated, projected);
      p.add(x, projected, x);
      if (l == 0) p.tap(x, tapped);
    }
    p.rms_norm(matrix(1, s.width), x, h, 1e-6f);
    p.gather_rows(h, last);
    p.matmul(matrix(s.vocabulary, s.width), last, logits);
    plan = world_.compile(p.program());
    EXPECT_NE(plan, nullptr) << world_.error.message;
  }
};

}  // namespace turbo::test
