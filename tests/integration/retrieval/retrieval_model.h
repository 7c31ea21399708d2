// A hand-made llama-family GGUF of one layer whose attention is a dictionary: a token (key, value) anywhere in the
// prompt answers the query token of its key, which must make the token of that value the most likely next one. No
// training and no luck: every weight follows from the equations below.
//
// Vocabulary (1024): 256 byte tokens and some more are fillers; one token for each (key, value); one query token for
// each key; one token for each value.
//
// Embedding of 256: [key code | query code | value code | answer], 64 each, |embedding|^2 = 2 for every token.
//   pair, filler: key code and value code, both of length 1. Codes of keys, and of fillers against them, have cosines
//   of at most 0.3. Query: its key's code times sqrt 2 in the query part, so its own key is zero. Answer: zero.
// Value code: one digit for each query head, each digit a vector of its own in that head's share of the 64; vectors of
//   different digits are orthogonal. So the right answer needs every query head, and with them every KV head.
// Attention: query = s A code, key = s (A code + B code), value = M code, with random orthogonal A, B and M of each KV
//   head. A fills the slow half of the rotary pairs (base 1e15: under 0.002 radians in 32768 positions), B the fast half,
//   which queries leave zero: half of a key's energy turns with its position, as in real models, and no score sees it.
//   Score of a match: kMatchScore = 26 nats, of anything else at most 0.3 times that, 0 on average. Among 32768
//   tokens the others together weigh about 32768 * exp(26^2 / 128 - 26) = 3e-5 of the match.
// Output: head h writes its digit's part, M^T value, into the answer. Logit of a value = kGain times the overlap of the
//   answer with the value's code; one wrong digit costs kDigitMargin = 8 nats. All other logits are 0.
#pragma once

#include <cmath>
#include <random>

#include "unit/model/gguf_writer.h"

namespace turbo::engine::testing {

class RetrievalModel {
 public:
  static constexpr uint32_t kKeys = 40, kValues = 16, kVocab = 1024;
  static constexpr uint32_t kPart = 64, kEmbd = 4 * kPart, kHeadDim = 128;
  static constexpr float kMatchScore = 26, kDigitMargin = 8;

  /// Query heads: 2 or 4.
  RetrievalModel(uint32_t heads, uint32_t kv_heads) : heads_(heads), kv_heads_(kv_heads) {
    draw_codes();
    for (uint32_t g = 0; g < kv_heads_; ++g) {
      slow_.push_back(orthogonal(kPart, kPart));
      fast_.push_back(orthogonal(kPart, kPart));
      value_.push_back(orthogonal(kPart, kHeadDim));
    }
  }

  static int32_t pair(uint32_t key, uint32_t value) { return static_cast<int32_t>(256 + key * kValues + value); }
  static int32_t query(uint32_t key) { return static_cast<int32_t>(256 + kKeys * kValues + key); }
  static int32_t value(uint32_t value) { return static_cast<int32_t>(256 + kKeys * kValues + kKeys + value); }
  static int32_t filler(uint32_t number) { return static_cast<int32_t>(number % 256); }

  std::string gguf(uint32_t context) const {
    model::testing::GgufWriter w;
    w.text("general.architecture", "llama").u32("llama.block_count", 1).u32("llama.context_length", context);
    w.u32("llama.embedding_length", kEmbd).u32("llama.feed_forward_length", 32).u32("llama.attention.head_count", heads_);
    w.u32("llama.attention.head_count_kv", kv_heads_).u32("llama.attention.key_length", kHeadDim);
    w.u32("llama.attention.value_length", kHeadDim).f32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
    w.f32("llama.rope.freq_base", 1e15f).u32("llama.rope.dimension_count", kHeadDim);
    add_tokenizer(w);
    const uint64_t q = uint64_t{heads_} * kHeadDim, kv = uint64_t{kv_heads_} * kHeadDim;
    const auto ones = raw(std::vector<float>(kEmbd, 1.0f));
    w.tensor("token_embd.weight", {kEmbd, kVocab}, 0, raw(embeddings()));
    w.tensor("blk.0.attn_norm.weight", {kEmbd}, 0, ones).tensor("blk.0.attn_q.weight", {kEmbd, q}, 0, raw(query_weights()));
    w.tensor("blk.0.attn_k.weight", {kEmbd, kv}, 0, raw(key_weights())).tensor("blk.0.attn_v.weight", {kEmbd, kv}, 0, raw(value_weights()));
    w.tensor("blk.0.attn_output.weight", {q, kEmbd}, 0, raw(output_weights())).tensor("blk.0.ffn_norm.weight", {kEmbd}, 0, ones);
    w.tensor("blk.0.ffn_gate.weight", {kEmbd, 32}, 0).tensor("blk.0.ffn_up.weight", {kEmbd, 32}, 0);
    w.tensor("blk.0.ffn_down.weight", {32, kEmbd}, 0).tensor("output_norm.weight", {kEmbd}, 0, ones);
    w.tensor("output.weight", {kEmbd, kVocab}, 0, raw(head_weights()));
    return w.build();
  }

 private:
  using Vector = std::vector<double>;

  static std::string raw(const std::vector<float>& x) { return {reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float)}; }
  static double dot(const Vector& a, const Vector& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
  }
  /// Box-Muller on raw draws: the same numbers with every standard library.
  double normal() {
    const double u = (static_cast<double>(random_()) + 1) / 4294967296.0, angle = static_cast<double>(random_()) / 4294967296.0;
    return std::sqrt(-2 * std::log(u)) * std::cos(6.283185307179586 * angle);
  }
  Vector unit(uint32_t n) {
    Vector x(n);
    for (double& e : x) e = normal();
    const double length = std::sqrt(dot(x, x));
    for (double& e : x) e /= length;
    return x;
  }
  /// `count` orthonormal vectors of n.
  std::vector<Vector> orthogonal(uint32_t count, uint32_t n) {
    std::vector<Vector> rows;
    while (rows.size() < count) {
      Vector x = unit(n);
      for (int pass = 0; pass < 2; ++pass)
        for (const Vector& row : rows) {
          const double overlap = dot(row, x);
          for (uint32_t i = 0; i < n; ++i) x[i] -= overlap * row[i];
        }
      const double length = std::sqrt(dot(x, x));
      if (length < 1e-3) continue;
      for (double& e : x) e /= length;
      rows.push_back(std::move(x));
    }
    return rows;
  }
  Vector distinct_code() {
    for (;;) {
      Vector code = unit(kPart);
      bool far = true;
      for (const Vector& key : keys_) far &= std::fabs(dot(code, key)) <= 0.3;
      if (far) return code;
    }
  }

  uint32_t share() const { return kPart / heads_; }
  uint32_t digits() const { return heads_ == 2 ? 4 : 2; }  // digits()^heads = kValues

  void draw_codes() {
    while (keys_.size() < kKeys) keys_.push_back(distinct_code());
    std::vector<std::vector<Vector>> digit;
    for (uint32_t h = 0; h < heads_; ++h) digit.push_back(orthogonal(digits(), share()));
    for (uint32_t v = 0; v < kValues; ++v) {
      Vector code;
      for (uint32_t h = 0, rest = v; h < heads_; ++h, rest /= digits())
        for (const double e : digit[h][rest % digits()]) code.push_back(e / std::sqrt(heads_));
      values_.push_back(std::move(code));
    }
  }

  std::vector<float> embeddings() const {
    RetrievalModel drawing = *this;  // fillers continue this object's draws
    std::vector<float> out(uint64_t{kVocab} * kEmbd, 0.0f);
    const auto put = [&](int32_t id, uint32_t part, const Vector& code, double size) {
      for (uint32_t e = 0; e < kPart; ++e) out[static_cast<uint64_t>(id) * kEmbd + part * kPart + e] = static_cast<float>(code[e] * size);
    };
    for (int32_t id = 0; id < static_cast<int32_t>(kVocab); ++id) {
      put(id, 0, drawing.distinct_code(), 1);
      put(id, 2, drawing.unit(kPart), 1);
    }
    const Vector nothing(kPart, 0.0);
    for (uint32_t key = 0; key < kKeys; ++key) {
      for (uint32_t v = 0; v < kValues; ++v) {
        put(pair(key, v), 0, keys_[key], 1);
        put(pair(key, v), 2, values_[v], 1);
      }
      put(query(key), 0, nothing, 0);
      put(query(key), 1, keys_[key], std::sqrt(2.0));
      put(query(key), 2, nothing, 0);
    }
    return out;
  }

  // After the norm every embedding is kNormed times itself.
  static double normed() { return std::sqrt(kEmbd / 2.0); }
  static double key_size() { return std::sqrt(kMatchScore * std::sqrt(double{kHeadDim}) / (std::sqrt(2.0) * normed() * normed())); }

  /// Rows [row_begin, + map width) of a matrix of kEmbd columns, on the columns of one part: out[r][c] = map[c][r] * size.
  static void put_map(std::vector<float>& out, uint64_t row_begin, uint32_t part, const std::vector<Vector>& map, double size) {
    for (uint32_t c = 0; c < map.size(); ++c)
      for (uint32_t r = 0; r < map[c].size(); ++r)
        out[(row_begin + r) * kEmbd + part * kPart + c] = static_cast<float>(map[c][r] * size);
  }
  uint32_t group_of(uint32_t head) const { return head / (heads_ / kv_heads_); }

  std::vector<float> query_weights() const {
    std::vector<float> out(uint64_t{heads_} * kHeadDim * kEmbd, 0.0f);
    for (uint32_t h = 0; h < heads_; ++h) put_map(out, uint64_t{h} * kHeadDim + kHeadDim / 2, 1, slow_[group_of(h)], key_size());
    return out;
  }
  std::vector<float> key_weights() const {
    std::vector<float> out(uint64_t{kv_heads_} * kHeadDim * kEmbd, 0.0f);
    for (uint32_t g = 0; g < kv_heads_; ++g) {
      put_map(out, uint64_t{g} * kHeadDim, 0, fast_[g], key_size());
      put_map(out, uint64_t{g} * kHeadDim + kHeadDim / 2, 0, slow_[g], key_size());
    }
    return out;
  }
  std::vector<float> value_weights() const {
    std::vector<float> out(uint64_t{kv_heads_} * kHeadDim * kEmbd, 0.0f);
    for (uint32_t g = 0; g < kv_heads_; ++g) put_map(out, uint64_t{g} * kHeadDim, 2, value_[g], 1 / normed());
    return out;
  }
  static constexpr double kAnswerSize = 2;
  std::vector<float> output_weights() const {
    const uint64_t width = uint64_t{heads_} * kHeadDim;
    std::vector<float> out(kEmbd * width, 0.0f);
    for (uint32_t h = 0; h < heads_; ++h)
      for (uint32_t e = h * share(); e < (h + 1) * share(); ++e)
        for (uint32_t r = 0; r < kHeadDim; ++r)
          out[(3 * kPart + e) * width + uint64_t{h} * kHeadDim + r] = static_cast<float>(value_[group_of(h)][e][r] * kAnswerSize);
    return out;
  }
  std::vector<float> head_weights() const {
    const double final_norm = std::sqrt(kEmbd / (2 + kAnswerSize * kAnswerSize));
    const double gain = kDigitMargin * heads_ / (final_norm * kAnswerSize);
    std::vector<float> out(uint64_t{kVocab} * kEmbd, 0.0f);
    for (uint32_t v = 0; v < kValues; ++v)
      for (uint32_t e = 0; e < kPart; ++e)
        out[static_cast<uint64_t>(value(v)) * kEmbd + 3 * kPart + e] = static_cast<float>(values_[v][e] * gain);
    return out;
  }

  static void add_tokenizer(model::testing::GgufWriter& w) {
    std::vector<std::string> tokens;
    for (uint32_t byte = 0, spare = 256; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte < 127) || (byte >= 161 && byte < 173) || byte >= 174;
      const uint32_t point = printable ? byte : spare++;
      if (point < 128) tokens.emplace_back(1, static_cast<char>(point));
      else tokens.push_back({static_cast<char>(0xc0 | point >> 6), static_cast<char>(0x80 | (point & 63))});
    }
    for (uint32_t id = 256; id + 1 < kVocab; ++id) tokens.push_back("t" + std::to_string(id));
    tokens.push_back("<|endoftext|>");
    std::vector<int32_t> types(kVocab, 1);
    types.back() = 3;
    w.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "qwen2").texts("tokenizer.ggml.tokens", tokens);
    w.array("tokenizer.ggml.token_type", 5, types).texts("tokenizer.ggml.merges", {});
    w.u32("tokenizer.ggml.eos_token_id", kVocab - 1);
  }

  uint32_t heads_, kv_heads_;
  std::mt19937 random_{20240229};
  std::vector<Vector> keys_, values_;
  std::vector<std::vector<Vector>> slow_, fast_, value_;  // [KV head][code element][head element]
};

}  // namespace turbo::engine::testing
