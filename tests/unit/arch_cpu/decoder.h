// A small decoder twice: as a step program on a pack, and as plain loops over one row at a time with the documented
// arithmetic. Every row of every step must give the bits of the plain one, whatever shares the step with it.
#pragma once

#include "fake_host.h"

#include <turbo/program.hpp>

#include <algorithm>
#include <map>
#include <random>

namespace turbo::test {

struct DecoderShape {
  uint32_t heads = 4, kv_heads = 2, head_dim = 16, layers = 2, width = 48, ff = 72, vocabulary = 40;
  uint32_t style = TURBO_ROPE_HALVES, act = TURBO_ACT_SILU;
  std::string codec = "f32";
  uint32_t q_width() const { return heads * head_dim; }
  uint32_t kv_width() const { return kv_heads * head_dim; }
  bool packs() const { return codec == "two_form" || codec == "mixed"; }
  bool two_form(uint32_t side, uint32_t layer) const {
    return codec == "two_form" || (codec == "mixed" && !FakeHost::mixed_is_one_form(side, layer));
  }
};

struct Matrix {
  uint64_t rows = 0, cols = 0;
  std::vector<float> values;
};

struct DecoderWeights {
  DecoderShape shape;
  Matrix embed, head, final_norm, frequencies;
  struct Layer { Matrix norm, q, q_bias, k, v, q_norm, k_norm, o, ff_norm, gate, up, down; };
  std::vector<Layer> layers;

  explicit DecoderWeights(const DecoderShape& s) : shape(s) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto matrix = [&](uint64_t rows, uint64_t cols) {
      Matrix m{rows, cols, std::vector<float>(rows * cols)};
      const float scale = rows == 1 ? 1.0f : 1.6f / std::sqrt(static_cast<float>(cols));
      for (float& x : m.values) x = normal(random) * scale;
      return m;
    };
    embed = matrix(s.vocabulary, s.width);
    head = matrix(s.vocabulary, s.width);
    final_norm = matrix(1, s.width);
    frequencies = matrix(1, s.head_dim / 2);
    for (size_t i = 0; i < frequencies.values.size(); ++i)
      frequencies.values[i] = std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(s.head_dim));
    for (uint32_t l = 0; l < s.layers; ++l)
      layers.push_back({matrix(1, s.width), matrix(s.q_width(), s.width), matrix(1, s.q_width()), matrix(s.kv_width(), s.width),
                        matrix(s.kv_width(), s.width), matrix(1, s.head_dim), matrix(1, s.head_dim), matrix(s.width, s.q_width()),
                        matrix(1, s.width), matrix(s.ff, s.width), matrix(s.ff, s.width), matrix(s.width, s.ff)});
  }
};

/// The plain decoder: one row after another; keys and values kept as appended.
class PlainDecoder {
 public:
  explicit PlainDecoder(const DecoderWeights& weights) : w_(&weights), keys_(weights.shape.layers), values_(weights.shape.layers) {}

  /// Logits of the next token.
  std::vector<float> next(int32_t token) {
    const DecoderShape& s = w_->shape;
    std::vector<float> x(w_->embed.values.begin() + token * s.width, w_->embed.values.begin() + (token + 1) * s.width);
    for (uint32_t l = 0; l < s.layers; ++l) layer(l, x);
    ++position_;
    return multiply(w_->head, norm(w_->final_norm, x, 1));
  }

  static std::vector<float> norm(const Matrix& weight, const std::vector<float>& x, uint32_t groups) {
    std::vector<float> out(x.size());
    const size_t n = x.size() / groups;
    for (size_t g = 0; g < groups; ++g) {
      const float* in = &x[g * n];
      const float inverse = 1.0f / std::sqrt(turbo_dot_f32(in, in, n) / static_cast<float>(n) + 1e-6f);
      for (size_t j = 0; j < n; ++j) out[g * n + j] = in[j] * inverse * weight.values[j];
    }
    return out;
  }
  static void rotate(const std::vector<float>& frequencies, float* x, uint32_t position, uint32_t style) {
    const uint32_t pairs = static_cast<uint32_t>(frequencies.size());
    for (uint32_t i = 0; i < pairs; ++i) {
      float& a = x[style == TURBO_ROPE_HALVES ? i : 2 * i];
      float& b = x[style == TURBO_ROPE_HALVES ? i + pairs : 2 * i + 1];
      const double angle = static_cast<double>(position) * static_cast<double>(frequencies[i]);
      const float c = static_cast<float>(std::cos(angle)), s = static_cast<float>(std::sin(angle)), a0 = a;
      a = fmaf(a0, c, -(b * s));
      b = fmaf(b, c, a0 * s);
    }
  }
  static float activate(uint32_t act, float x) {
    if (act == TURBO_ACT_SILU) return turbo_silu(x);
    const float two_u = 1.5957691216057308f * (x * fmaf(0.044715f, x * x, 1.0f));
    return x / (1.0f + turbo_exp(-two_u));
  }

 private:
  static std::vector<float> multiply(const Matrix& m, const std::vector<float>& x) {
    std::vector<float> out(m.rows);
    for (uint64_t o = 0; o < m.rows; ++o) out[o] = turbo_dot_f32(&m.values[o * m.cols], x.data(), m.cols);
    return out;
  }

  float stored(float x, uint32_t key, uint32_t side, uint32_t layer) const {
    const std::string& codec = w_->shape.codec;
    const bool two_form = w_->shape.two_form(side, layer);
    if (codec == "f16" || (codec == "mixed" && !two_form)) return turbo_f16_to_f32(turbo_f32_to_f16(x));
    if (codec == "bf16") return turbo_bf16_to_f32(turbo_f32_to_bf16(x));
    if (two_form && key >= TwoFormCodec::kSinks && key / 64 != position_ / 64) return turbo_f16_to_f32(turbo_f32_to_f16(x));
    return x;
  }

  void layer(uint32_t l, std::vector<float>& x) {
    const DecoderShape& s = w_->shape;
    const DecoderWeights::Layer& w = w_->layers[l];
    const std::vector<float> h = norm(w.norm, x, 1);
    std::vector<float> q = multiply(w.q, h), k = multiply(w.k, h), v = multiply(w.v, h);
    for (size_t j = 0; j < q.size(); ++j) q[j] = q[j] + w.q_bias.values[j];
    q = norm(w.q_norm, q, s.heads);
    k = norm(w.k_norm, k, s.kv_heads);
    for (uint32_t i = 0; i < s.heads; ++i) rotate(w_->frequencies.values, &q[i * s.head_dim], position_, s.style);
    for (uint32_t i = 0; i < s.kv_heads; ++i) rotate(w_->frequencies.values, &k[i * s.head_dim], position_, s.style);
    keys_[l].push_back(k);
    values_[l].push_back(v);
    std::vector<float> a(s.q_width());
    for (uint32_t head = 0; head < s.heads; ++head) attend(l, head, &q[head * s.head_dim], &a[head * s.head_dim]);
    const std::vector<float> o = multiply(w.o, a);
    for (size_t j = 0; j < x.size(); ++j) x[j] = x[j] + o[j];
    const std::vector<float> h2 = norm(w.ff_norm, x, 1), up = multiply(w.up, h2);
    std::vector<float> gate = multiply(w.gate, h2);
    for (size_t j = 0; j < gate.size(); ++j) gate[j] = activate(s.act, gate[j]) * up[j];
    const std::vector<float> down = multiply(w.down, gate);
    for (size_t j = 0; j < x.size(); ++j) x[j] = x[j] + down[j];
  }

  void attend(uint32_t l, uint32_t head, const float* q, float* out) const {
    const DecoderShape& s = w_->shape;
    const uint32_t d = s.head_dim, offset = head / (s.heads / s.kv_heads) * d;
    const float scale = 1.0f / std::sqrt(static_cast<float>(d));
    const bool forms = s.two_form(TURBO_KV_SIDE_V, l);
    float top = 0, total = 0;
    std::vector<float> sum(d), sum_open(d), key(d);
    for (uint32_t begin = 0; begin <= position_; begin += 64) {
      const uint32_t n = std::min(64u, position_ + 1 - begin);
      std::vector<float> p(n), part(d, 0.0f), part_open(d, 0.0f);
      float m = -INFINITY, lane[16] = {0};
      for (uint32_t i = 0; i < n; ++i) {
        for (uint32_t e = 0; e < d; ++e) key[e] = stored(keys_[l][begin + i][offset + e], begin + i, TURBO_KV_SIDE_K, l);
        p[i] = turbo_dot_f32(q, key.data(), d) * scale;
        m = std::max(m, p[i]);
      }
      for (uint32_t i = 0; i < n; ++i) {
        p[i] = turbo_exp(p[i] - m);
        lane[i % 16] = lane[i % 16] + p[i];
        // With two forms the pack keeps one sum per form.
        const bool open = forms && (begin + i < TwoFormCodec::kSinks || (begin + i) / 64 == position_ / 64);
        std::vector<float>& into = open ? part_open : part;
        for (uint32_t e = 0; e < d; ++e) into[e] = fmaf(p[i], stored(values_[l][begin + i][offset + e], begin + i, TURBO_KV_SIDE_V, l), into[e]);
      }
      const float l_part = turbo_lane_sum(lane);
      if (begin == 0) {
        top = m;
        total = l_part;
        sum = part;
        sum_open = part_open;
        continue;
      }
      const float top_new = std::max(top, m), a = turbo_exp(top - top_new), b = turbo_exp(m - top_new);
      total = fmaf(total, a, l_part * b);
      for (uint32_t e = 0; e < d; ++e) sum[e] = fmaf(sum[e], a, part[e] * b);
      for (uint32_t e = 0; e < d; ++e) sum_open[e] = fmaf(sum_open[e], a, part_open[e] * b);
      top = top_new;
    }
    for (uint32_t e = 0; e < d; ++e) out[e] = forms ? sum_open[e] / total + sum[e] / total : sum[e] / total;
  }

  const DecoderWeights* w_;
  std::vector<std::vector<std::vector<float>>> keys_, values_;  // [layer][position][kv head * head_dim]
  uint32_t position_ = 0;
};

/// A row of a step. Without a path its slot is its position.
struct StepRow {
  uint32_t seq;
  int32_t token, position;
  std::vector<int32_t> path;  // slots past the committed ones, its own last
};

/// The decoder on a pack: sequences with random block tables over one pool.
class PackDecoder {
 public:
  static constexpr uint32_t kMaxRows = 96, kBlocksPerSequence = 8, kPath = 16;

  PackDecoder(const DecoderWeights& weights, uint32_t threads, const std::string& isa, uint32_t n_sequences, uint32_t seed)
      : world(threads, weights.shape.codec, isa), shape_(weights.shape), random_(seed), committed(n_sequences, 0) {
    if (!world.pack.ok()) { ADD_FAILURE() << world.pack.message(); return; }
    const uint32_t blocks = n_sequences * kBlocksPerSequence;
    const turbo_kv_pool_desc desc{sizeof desc, shape_.layers, shape_.kv_heads, shape_.head_dim, shape_.head_dim, blocks, blocks};
    EXPECT_EQ(world.pack->kv_create(world.pack.self(), &desc, &pool, &world.error), TURBO_OK) << world.error.message;
    table = world.table(kMaxRows, n_sequences, kBlocksPerSequence, kPath);
    for (auto* ids : {&packed_ids_, &open_ids_}) {
      ids->resize(blocks);
      for (uint32_t i = 0; i < blocks; ++i) (*ids)[i] = static_cast<int32_t>(i);
      std::shuffle(ids->begin(), ids->end(), random_);
    }
    for (uint32_t i = 0; i < blocks; ++i) {
      table->block_table[i] = shape_.codec == "two_form" ? -1 : packed_ids_[i];
      table->open_table[i] = shape_.packs() ? open_ids_[i] : -1;
    }
    build(weights);
  }

  /// Logits of every row.
  std::vector<std::vector<float>> step(const std::vector<StepRow>& rows) {
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
      table->logit_row[i] = static_cast<int32_t>(i);
    }
    EXPECT_EQ(world.run(plan, table), TURBO_OK) << world.error.message;
    const float* out = world.buffer(plan, logits);
    std::vector<std::vector<float>> result;
    for (size_t i = 0; i < rows.size(); ++i) result.emplace_back(out + i * shape_.vocabulary, out + (i + 1) * shape_.vocabulary);
    return result;
  }

  /// The first n positions of the sequence are final: pack what closed.
  void commit(uint32_t seq, int32_t n) {
    for (int32_t block = committed[seq] / 64; shape_.packs() && block < n / 64; ++block) {
      const uint32_t at = seq * kBlocksPerSequence + static_cast<uint32_t>(block);
      EXPECT_EQ(world.pack->kv_pack(world.pack.self(), pool, open_ids_[at], packed_ids_[at], &world.error), TURBO_OK) << world.error.message;
      table->block_table[at] = packed_ids_[at];
      if (block > 0) table->open_table[at] = -1;  // block 0 keeps its sinks
    }
    committed[seq] = n;
  }

  PackWorld world;

 private:
  DecoderShape shape_;
  std::mt19937 random_;
  std::vector<int32_t> packed_ids_, open_ids_;

  void build(const DecoderWeights& w) {
    const DecoderShape& s = shape_;
    const auto load = [this](const Matrix& m) { return world.weight(m.values, m.rows, m.cols); };
    ProgramBuilder b("decoder", kMaxRows, kMaxRows, pool);
    const uint32_t x = b.buffer("x", s.width), h = b.buffer("h", s.width), q = b.buffer("q", s.q_width()), k = b.buffer("k", s.kv_width()),
                   v = b.buffer("v", s.kv_width()), a = b.buffer("a", s.q_width()), gate = b.buffer("gate", s.ff), up = b.buffer("up", s.ff);
    const uint32_t last = b.buffer("last", s.width, TURBO_ROWS_LOGIT);
    logits = b.buffer("logits", s.vocabulary, TURBO_ROWS_LOGIT, true);
    const turbo_weight* frequencies = load(w.frequencies);
    b.embed(load(w.embed), x);
    for (uint32_t l = 0; l < s.layers; ++l) {
      const DecoderWeights::Layer& lw = w.layers[l];
      b.rms_norm(load(lw.norm), x, h, 1e-6f);
      b.matmul(load(lw.q), h, q, load(lw.q_bias));
      b.matmul(load(lw.k), h, k);
      b.matmul(load(lw.v), h, v);
      b.rms_norm(load(lw.q_norm), q, q, 1e-6f, s.heads);
      b.rms_norm(load(lw.k_norm), k, k, 1e-6f, s.kv_heads);
      b.rope({frequencies, q, s.heads, s.head_dim, s.head_dim, s.style, 1.0f});
      b.rope({frequencies, k, s.kv_heads, s.head_dim, s.head_dim, s.style, 1.0f});
      b.kv_append(l, k, v);
      b.attend({l, q, a, s.heads, 1.0f / std::sqrt(static_cast<float>(s.head_dim))});
      b.matmul(load(lw.o), a, h);
      b.add(x, h, x);
      b.rms_norm(load(lw.ff_norm), x, h, 1e-6f);
      b.matmul(load(lw.gate), h, gate);
      b.matmul(load(lw.up), h, up);
      b.gated_act(gate, up, gate, s.act);
      b.matmul(load(lw.down), gate, h);
      b.add(x, h, x);
    }
    b.gather_rows(x, last);
    b.rms_norm(load(w.final_norm), last, last, 1e-6f);
    b.matmul(load(w.head), last, logits);
    plan = world.compile(b.program());
    EXPECT_NE(plan, nullptr) << world.error.message;
  }

 public:
  std::vector<int32_t> committed;  // per sequence
  turbo_kv_pool* pool = nullptr;
  turbo_step_table* table = nullptr;
  turbo_plan* plan = nullptr;
  uint32_t logits = 0;
};

}  // namespace turbo::test
