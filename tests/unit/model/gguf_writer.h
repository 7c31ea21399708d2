// Writes GGUF files for tests: valid ones with little code, and broken ones field by field.
//
//   GgufWriter w;
//   w.text("general.architecture", "qwen3").u32("qwen3.block_count", 2);
//   w.tensor("token_embd.weight", {256, 64}, 41, bytes);
//   std::string file = w.build();
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/files/tensor_types.h"

namespace turbo::model::testing {

class GgufWriter {
 public:
  uint32_t version = 3;
  std::string magic = "GGUF";
  uint64_t alignment = 32;  // used for the layout only; add the key with u32("general.alignment", n)
  // Overrides of header fields.
  std::optional<int64_t> tensor_count, key_count;

  template <typename T>
  static std::string raw(T value) {
    std::string bytes(sizeof(T), '\0');
    std::memcpy(bytes.data(), &value, sizeof(T));
    return bytes;
  }
  static std::string raw_string(std::string_view text) { return raw(uint64_t(text.size())) + std::string(text); }

  /// A pair with any type number and payload.
  GgufWriter& pair(std::string_view key, uint32_t type, std::string payload) {
    pairs_.push_back(raw_string(key) + raw(type) + payload);
    return *this;
  }
  GgufWriter& u8(std::string_view key, uint8_t v) { return pair(key, 0, raw(v)); }
  GgufWriter& i8(std::string_view key, int8_t v) { return pair(key, 1, raw(v)); }
  GgufWriter& u16(std::string_view key, uint16_t v) { return pair(key, 2, raw(v)); }
  GgufWriter& i16(std::string_view key, int16_t v) { return pair(key, 3, raw(v)); }
  GgufWriter& u32(std::string_view key, uint32_t v) { return pair(key, 4, raw(v)); }
  GgufWriter& i32(std::string_view key, int32_t v) { return pair(key, 5, raw(v)); }
  GgufWriter& f32(std::string_view key, float v) { return pair(key, 6, raw(v)); }
  GgufWriter& boolean(std::string_view key, bool v) { return pair(key, 7, raw(uint8_t(v))); }
  GgufWriter& text(std::string_view key, std::string_view v) { return pair(key, 8, raw_string(v)); }
  GgufWriter& u64(std::string_view key, uint64_t v) { return pair(key, 10, raw(v)); }
  GgufWriter& i64(std::string_view key, int64_t v) { return pair(key, 11, raw(v)); }
  GgufWriter& f64(std::string_view key, double v) { return pair(key, 12, raw(v)); }
  template <typename T>
  GgufWriter& array(std::string_view key, uint32_t element, const std::vector<T>& values) {
    std::string payload = raw(element) + raw(uint64_t(values.size()));
    for (const T& value : values) payload += raw(value);
    return pair(key, 9, payload);
  }
  GgufWriter& texts(std::string_view key, const std::vector<std::string>& values) {
    std::string payload = raw(uint32_t(8)) + raw(uint64_t(values.size()));
    for (const std::string& value : values) payload += raw_string(value);
    return pair(key, 9, payload);
  }

  /// `data` may be empty: zeros of the type's size are written. `offset` overrides the running sum.
  GgufWriter& tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type, std::string data = {},
                     std::optional<uint64_t> offset = {}) {
    if (data.empty()) {
      uint64_t elements = 1;
      for (uint64_t dim : dims) elements *= dim;
      const TypeInfo* info = find_type(type);
      data.assign(info ? size_t(elements / info->block_weights * info->block_bytes) : 32, '\0');
    }
    tensors_.push_back({std::string(name), std::move(dims), type, std::move(data), offset});
    return *this;
  }

  /// Everything before the padding of the data section.
  std::string header() const {
    std::string out = magic + raw(version) + raw(tensor_count.value_or(int64_t(tensors_.size()))) +
                      raw(key_count.value_or(int64_t(pairs_.size())));
    for (const std::string& pair : pairs_) out += pair;
    uint64_t running = 0;
    for (const Entry& t : tensors_) {
      out += raw_string(t.name) + raw(uint32_t(t.dims.size()));
      for (uint64_t dim : t.dims) out += raw(dim);
      out += raw(t.type) + raw(t.offset.value_or(running));
      running = padded(running + t.data.size());
    }
    return out;
  }

  std::string build() const {
    std::string out = header();
    if (tensors_.empty()) return out;
    out.resize(padded(out.size()), '\0');
    const size_t data = out.size();
    for (const Entry& t : tensors_) {
      out += t.data;
      out.resize(data + padded(out.size() - data), '\0');
    }
    return out;
  }

 private:
  struct Entry {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    std::string data;
    std::optional<uint64_t> offset;
  };
  uint64_t padded(uint64_t n) const { return (n + alignment - 1) / alignment * alignment; }

  std::vector<std::string> pairs_;
  std::vector<Entry> tensors_;
};

/// A folder that goes away with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "turbo-test-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data()) ? pattern : std::string();
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const auto file = path_ / name;
    std::ofstream(file, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
    return file;
  }

 private:
  std::filesystem::path path_;
};

/// Keys and tensors of a small, complete model; tests replace the parts that they break.
struct TinyModel {
  std::string architecture = "qwen3";
  uint32_t layers = 2, embd = 128, ff = 256, heads = 2, kv_heads = 1, head_dim = 64, vocab = 8;
  uint32_t matrix_type = 41;
  bool with_head = false;

  GgufWriter keys() const {
    const std::string a = architecture + ".";
    GgufWriter w;
    w.text("general.architecture", architecture).u32(a + "block_count", layers).u32(a + "context_length", 64);
    w.u32(a + "embedding_length", embd).u32(a + "feed_forward_length", ff).u32(a + "attention.head_count", heads);
    w.u32(a + "attention.head_count_kv", kv_heads).u32(a + "attention.key_length", head_dim);
    w.u32(a + "attention.value_length", head_dim).f32(a + "attention.layer_norm_rms_epsilon", 1e-6f);
    return w;
  }
  void add_tensors(GgufWriter& w) const {
    w.tensor("token_embd.weight", {embd, vocab}, matrix_type);
    for (uint32_t i = 0; i < layers; ++i) add_layer(w, i);
    w.tensor("output_norm.weight", {embd}, 0);
    if (with_head) w.tensor("output.weight", {embd, vocab}, matrix_type);
  }
  void add_layer(GgufWriter& w, uint32_t i) const {
    const std::string b = "blk." + std::to_string(i) + ".";
    const uint64_t q = uint64_t(heads) * head_dim, kv = uint64_t(kv_heads) * head_dim;
    w.tensor(b + "attn_norm.weight", {embd}, 0).tensor(b + "attn_q.weight", {embd, q}, matrix_type);
    w.tensor(b + "attn_k.weight", {embd, kv}, matrix_type).tensor(b + "attn_v.weight", {embd, kv}, matrix_type);
    if (architecture == "qwen2")
      w.tensor(b + "attn_q.bias", {q}, 0).tensor(b + "attn_k.bias", {kv}, 0).tensor(b + "attn_v.bias", {kv}, 0);
    if (architecture == "qwen3")
      w.tensor(b + "attn_q_norm.weight", {head_dim}, 0).tensor(b + "attn_k_norm.weight", {head_dim}, 0);
    w.tensor(b + "attn_output.weight", {q, embd}, matrix_type).tensor(b + "ffn_norm.weight", {embd}, 0);
    w.tensor(b + "ffn_gate.weight", {embd, ff}, matrix_type).tensor(b + "ffn_up.weight", {embd, ff}, matrix_type);
    w.tensor(b + "ffn_down.weight", {ff, embd}, matrix_type);
  }
  GgufWriter writer() const {
    GgufWriter w = keys();
    add_tensors(w);
    return w;
  }
};

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace turbo::model::testing
