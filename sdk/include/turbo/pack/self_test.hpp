// Self-test of arch packs: one tiny decoder layer with every op, two rows, against plain loops in double. [load]
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/plugin.hpp>
#include <turbo/program.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace turbo::pack {

/// How the pack that is tested does what a host asks of it. They throw Failure.
struct TestedPack {
  std::string name;  // "CPU"
  std::string hint;  // for who finds that it computes wrongly
  std::function<const turbo_weight*(const turbo_weight_source&)> load;
  std::function<turbo_kv_pool*(const turbo_kv_pool_desc&)> make_pool;
  /// Compile, make a table of these sizes, let it be filled, run, and wait.
  std::function<void(const turbo_program&, const turbo_step_caps&, const std::function<void(turbo_step_table&)>&)> run;
  /// Rows of a kept buffer of that run, dense.
  std::function<std::vector<float>(uint32_t buffer, uint32_t rows, uint32_t width)> read;
};

namespace detail {

constexpr uint32_t kVocabulary = 24, kWidth = 40, kHeads = 4, kKvHeads = 2, kHeadDim = 20, kRotated = 16, kFf = 56, kRows = 2, kBest = 5;
constexpr double kEps = 1e-5, kScale = 0.25;
using Row = std::vector<double>;

// Weights in (-0.5, 0.5), the same on every run.
class TestWeights {
 public:
  explicit TestWeights(const TestedPack& pack) : pack_(pack) {}
  const turbo_weight* make(uint64_t rows, uint64_t cols) {
    data_.emplace_back(std::make_unique<Matrix>(Matrix{cols, std::vector<float>(rows * cols)}));
    Matrix& matrix = *data_.back();
    for (float& x : matrix.values) {
      state_ = state_ * 1664525u + 1013904223u;
      x = static_cast<float>(state_ >> 8) / 16777216.0f - 0.5f;
    }
    const turbo_weight_source source{sizeof(turbo_weight_source), TURBO_TYPE_F32, "self-test", rows, cols, matrix.values.data(),
                                     rows * cols * sizeof(float), {0, 1, 0}};
    const turbo_weight* weight = pack_.load(source);
    matrices_[weight] = &matrix;
    return weight;
  }
  double at(const turbo_weight* w, uint64_t row, uint64_t col) const {
    const Matrix& m = *matrices_.at(w);
    return m.values[row * m.cols + col];
  }
  uint64_t rows(const turbo_weight* w) const { return matrices_.at(w)->values.size() / matrices_.at(w)->cols; }

 private:
  struct Matrix {
    uint64_t cols;
    std::vector<float> values;
  };
  const TestedPack& pack_;
  uint32_t state_ = 1;
  std::vector<std::unique_ptr<Matrix>> data_;
  std::map<const turbo_weight*, const Matrix*> matrices_;
};

struct Layer {
  const turbo_weight *embed, *norm, *head_norm, *q, *q_bias, *k, *v, *frequencies, *o, *gate, *up, *down, *head;
  explicit Layer(TestWeights& w)
      : embed(w.make(kVocabulary, kWidth)), norm(w.make(1, kWidth)), head_norm(w.make(1, kHeadDim)), q(w.make(kHeads * kHeadDim, kWidth)),
        q_bias(w.make(1, kHeads * kHeadDim)), k(w.make(kKvHeads * kHeadDim, kWidth)), v(w.make(kKvHeads * kHeadDim, kWidth)),
        frequencies(w.make(1, kRotated / 2)), o(w.make(kWidth, kHeads * kHeadDim)), gate(w.make(kFf, kWidth)), up(w.make(kFf, kWidth)),
        down(w.make(kWidth, kFf)), head(w.make(kVocabulary, 2 * kWidth)) {}
};

struct Ids { uint32_t logits, best_ids, best_values, tapped; };

inline Ids describe(ProgramBuilder& b, const Layer& w, uint32_t act, uint32_t style) {
  const uint32_t x = b.buffer("x", kWidth), h = b.buffer("h", kWidth), q = b.buffer("q", kHeads * kHeadDim), k = b.buffer("k", kKvHeads * kHeadDim),
                 v = b.buffer("v", kKvHeads * kHeadDim), a = b.buffer("a", kHeads * kHeadDim), gate = b.buffer("gate", kFf), up = b.buffer("up", kFf),
                 pair = b.buffer("pair", 2 * kWidth), last = b.buffer("last", 2 * kWidth, TURBO_ROWS_LOGIT);
  Ids ids{};
  ids.logits = b.buffer("logits", kVocabulary, TURBO_ROWS_LOGIT, true);
  ids.best_ids = b.buffer("best ids", kBest, TURBO_ROWS_LOGIT, true);
  ids.best_values = b.buffer("best values", kBest, TURBO_ROWS_LOGIT, true);
  ids.tapped = b.buffer("tapped", kWidth, TURBO_ROWS_STEP, true);
  b.embed(w.embed, x);
  b.rms_norm(w.norm, x, h, static_cast<float>(kEps));
  b.matmul(w.q, h, q, w.q_bias);
  b.matmul(w.k, h, k);
  b.matmul(w.v, h, v);
  b.rms_norm(w.head_norm, q, q, static_cast<float>(kEps), kHeads);
  b.rope({w.frequencies, q, kHeads, kHeadDim, kRotated, style, 1.0f});
  b.rope({w.frequencies, k, kKvHeads, kHeadDim, kRotated, style, 1.0f});
  b.kv_append(0, k, v);
  b.attend({0, q, a, kHeads, static_cast<float>(kScale)});
  b.matmul(w.o, a, h);
  b.add(x, h, x);
  b.tap(x, ids.tapped);
  b.rms_norm(w.norm, x, h, static_cast<float>(kEps));
  b.matmul(w.gate, h, gate);
  b.matmul(w.up, h, up);
  b.gated_act(gate, up, gate, act);
  b.matmul(w.down, gate, h);
  b.concat(x, h, pair);
  b.add(x, h, x);
  b.gather_rows(pair, last);
  b.matmul(w.head, last, ids.logits);
  return ids;
}

inline Row matmul(const TestWeights& w, const turbo_weight* m, const Row& x) {
  Row out(w.rows(m), 0.0);
  for (uint64_t o = 0; o < out.size(); ++o)
    for (uint64_t j = 0; j < x.size(); ++j) out[o] += w.at(m, o, j) * x[j];
  return out;
}
inline Row rms_norm(const TestWeights& w, const turbo_weight* weight, const Row& x, uint32_t groups) {
  Row out(x.size());
  const size_t n = x.size() / groups;
  for (size_t g = 0; g < groups; ++g) {
    double sum = 0;
    for (size_t j = 0; j < n; ++j) sum += x[g * n + j] * x[g * n + j];
    for (size_t j = 0; j < n; ++j) out[g * n + j] = x[g * n + j] / std::sqrt(sum / static_cast<double>(n) + kEps) * w.at(weight, 0, j);
  }
  return out;
}
inline void rope(const TestWeights& w, const turbo_weight* frequencies, Row& x, uint32_t heads, uint32_t position, uint32_t style) {
  for (uint32_t h = 0; h < heads; ++h)
    for (uint32_t i = 0; i < kRotated / 2; ++i) {
      double& a = x[h * kHeadDim + (style == TURBO_ROPE_HALVES ? i : 2 * i)];
      double& b = x[h * kHeadDim + (style == TURBO_ROPE_HALVES ? i + kRotated / 2 : 2 * i + 1)];
      const double angle = position * w.at(frequencies, 0, i), a0 = a;
      a = a0 * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + a0 * std::sin(angle);
    }
}
inline double activation(uint32_t act, double x) {
  if (act == TURBO_ACT_SILU) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x)));
}

struct Answer { Row tapped, logits; };

inline std::vector<Answer> expected(const TestWeights& w, const Layer& l, uint32_t act, uint32_t style, const int32_t* tokens) {
  std::vector<Row> keys, values;
  std::vector<Answer> answers;
  for (uint32_t r = 0; r < kRows; ++r) {
    Row x(kWidth), a(kHeads * kHeadDim, 0.0);
    for (uint32_t j = 0; j < kWidth; ++j) x[j] = w.at(l.embed, static_cast<uint64_t>(tokens[r]), j);
    const Row h = rms_norm(w, l.norm, x, 1);
    Row q = matmul(w, l.q, h), k = matmul(w, l.k, h);
    for (size_t j = 0; j < q.size(); ++j) q[j] += w.at(l.q_bias, 0, j);
    q = rms_norm(w, l.head_norm, q, kHeads);
    rope(w, l.frequencies, q, kHeads, r, style);
    rope(w, l.frequencies, k, kKvHeads, r, style);
    keys.push_back(k);
    values.push_back(matmul(w, l.v, h));
    for (uint32_t head = 0; head < kHeads; ++head) {
      const uint32_t kv = head / (kHeads / kKvHeads) * kHeadDim;
      Row p(r + 1, 0.0);
      double sum = 0;
      for (uint32_t i = 0; i <= r; ++i) {
        for (uint32_t e = 0; e < kHeadDim; ++e) p[i] += q[head * kHeadDim + e] * keys[i][kv + e];
        sum += p[i] = std::exp(p[i] * kScale);
      }
      for (uint32_t i = 0; i <= r; ++i)
        for (uint32_t e = 0; e < kHeadDim; ++e) a[head * kHeadDim + e] += p[i] / sum * values[i][kv + e];
    }
    const Row o = matmul(w, l.o, a);
    for (uint32_t j = 0; j < kWidth; ++j) x[j] += o[j];
    const Row h2 = rms_norm(w, l.norm, x, 1), up = matmul(w, l.up, h2);
    Row gate = matmul(w, l.gate, h2);
    for (uint32_t j = 0; j < kFf; ++j) gate[j] = activation(act, gate[j]) * up[j];
    Row pair = x;
    for (const double y : matmul(w, l.down, gate)) pair.push_back(y);
    answers.push_back({x, matmul(w, l.head, pair)});
  }
  return answers;
}

inline void compare(const TestedPack& pack, const char* what, const float* got, const Row& want) {
  for (size_t j = 0; j < want.size(); ++j)
    if (!(std::fabs(got[j] - want[j]) <= 1e-4 * (1 + std::fabs(want[j]))))
      throw Failure(TURBO_INTERNAL, pack.name + " self-test: " + what + "[" + std::to_string(j) + "] is " + std::to_string(got[j]) + " but must be " + std::to_string(want[j]),
                    pack.hint);
}

inline void compare_best(const TestedPack& pack, const float* ids, const float* values, const Row& logits) {
  std::vector<uint32_t> order(logits.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
  for (uint32_t i = 0; i < kBest; ++i) {
    uint32_t id;
    std::memcpy(&id, ids + i, 4);
    if (id >= logits.size()) throw Failure(TURBO_INTERNAL, pack.name + " self-test: top_k gives id " + std::to_string(id), pack.hint);
    compare(pack, "top_k", values + i, {logits[order[i]]});
    compare(pack, "top_k by id", values + i, {logits[id]});
  }
}

inline void run_case(const TestedPack& pack, uint32_t act, uint32_t style) {
  TestWeights weights(pack);
  const Layer layer(weights);
  const turbo_kv_pool_desc desc{sizeof(turbo_kv_pool_desc), 1, kKvHeads, kHeadDim, kHeadDim, 1, 0};
  ProgramBuilder builder("self-test", kRows, kRows, pack.make_pool(desc));
  const Ids ids = describe(builder, layer, act, style);
  turbo_program program = builder.program();
  std::vector<turbo_op> ops(program.ops, program.ops + program.n_ops);  // the builder has no top_k
  turbo_op best{};
  best.struct_size = sizeof best;
  best.kind = TURBO_OP_TOP_K;
  best.u.top_k = {ids.logits, ids.best_ids, ids.best_values, kBest};
  ops.push_back(best);
  program.ops = ops.data();
  program.n_ops = static_cast<uint32_t>(ops.size());

  const int32_t tokens[kRows] = {3, 17};
  turbo_step_caps caps{};
  caps.struct_size = sizeof caps;
  caps.rows = caps.logit_rows = kRows;
  caps.sequences = caps.blocks_per_sequence = 1;
  pack.run(program, caps, [&](turbo_step_table& table) {
    table.n_rows = table.n_logit_rows = kRows;
    table.n_seqs = 1;
    table.block_table[0] = 0;
    for (int32_t r = 0; r < static_cast<int32_t>(kRows); ++r) {
      table.token[r] = tokens[r];
      table.position[r] = table.slot[r] = r;
      table.logit_row[r] = static_cast<int32_t>(kRows) - 1 - r;
    }
  });
  const auto answers = expected(weights, layer, act, style, tokens);
  const auto tapped = pack.read(ids.tapped, kRows, kWidth), logits = pack.read(ids.logits, kRows, kVocabulary),
             best_ids = pack.read(ids.best_ids, kRows, kBest), best_values = pack.read(ids.best_values, kRows, kBest);
  for (uint32_t r = 0; r < kRows; ++r) {
    const uint32_t logit = kRows - 1 - r;
    compare(pack, "hidden state", &tapped[r * kWidth], answers[r].tapped);
    compare(pack, "logits", &logits[logit * kVocabulary], answers[r].logits);
    compare_best(pack, &best_ids[logit * kBest], &best_values[logit * kBest], answers[r].logits);
  }
}

}  // namespace detail

/// Every op in tiny programs against plain loops. Throws Failure naming what differs.
inline void run_known_answers(const TestedPack& pack) {
  for (const uint32_t act : {TURBO_ACT_SILU, TURBO_ACT_GELU_TANH})
    for (const uint32_t style : {TURBO_ROPE_HALVES, TURBO_ROPE_INTERLEAVED}) detail::run_case(pack, act, style);
}

}  // namespace turbo::pack
