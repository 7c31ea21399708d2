// What the tests of the library's codecs share: a host with options, a block, an instance by name. Single-threaded.
#pragma once

#include <turbo/abi/draft/kv_codec.h>
#include <turbo/abi/host.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "library.h"

namespace turbo::test {

using CodecInstance = Instance<turbo_kv_codec>;

inline Library& library() {
  static Library lib(std::string(TURBO_TEST_PLUGINS) + "/kv_float/libturbo_kv_float_cpu.so");
  return lib;
}

inline turbo_kv_shape shape_of(uint32_t side, uint32_t heads, uint32_t dim) {
  return {sizeof(turbo_kv_shape), side, 0, 1, heads, dim};
}

/// A host whose config service knows these texts.
class OptionHost {
 public:
  explicit OptionHost(std::map<std::string, std::string> options) : options_(std::move(options)) {
    config_ = {sizeof(turbo_host_config), 0, this, &get_string,
               [](void*, const char*, int64_t*) -> turbo_status { return TURBO_NOT_FOUND; },
               [](void*, const char*, double*) -> turbo_status { return TURBO_NOT_FOUND; },
               [](void*, const char*, uint32_t*) -> turbo_status { return TURBO_NOT_FOUND; }};
    host_ = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, this, [](const turbo_host* host, const char* id) -> const void* {
               return std::string(id) == TURBO_HOST_CONFIG ? &static_cast<OptionHost*>(host->ctx)->config_ : nullptr;
             }};
  }
  OptionHost(const OptionHost&) = delete;
  const turbo_host* host() const { return &host_; }

 private:
  static turbo_status get_string(void* ctx, const char* key, const char** value) {
    const auto& options = static_cast<OptionHost*>(ctx)->options_;
    const auto found = options.find(key);
    if (found == options.end()) return TURBO_NOT_FOUND;
    *value = found->second.c_str();
    return TURBO_OK;
  }
  std::map<std::string, std::string> options_;
  turbo_host_config config_{};
  turbo_host host_{};
};

/// A codec with options.
struct Variant {
  std::string name;
  std::map<std::string, std::string> options;
  std::string text() const {
    std::string out = name;
    for (const auto& [key, value] : options) out += " " + key + "=" + value;
    return out;
  }
};

struct Codec {
  OptionHost host;
  CodecInstance instance;
  Codec(const Variant& variant, const std::string& isa = {})
      : host(variant.options), instance(library().component(variant.name), TURBO_KV_CODEC_DRAFT, host.host(), isa) {
    EXPECT_TRUE(instance.ok()) << variant.text() << ": " << instance.message();
  }
  const turbo_kv_codec* operator->() const { return instance.table(); }
  void* self() const { return instance.self(); }
};

/// One block with a guard of `fill` behind it, at an address that is a multiple of 64.
struct Block {
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  std::vector<uint8_t> raw;
  uint8_t* base = nullptr;
  template <typename C>
  Block(const C& codec, const turbo_kv_shape& shape, uint8_t fill) {
    turbo_error error{sizeof(turbo_error)};
    EXPECT_EQ(codec->layout(codec.self(), &shape, &layout, &error), TURBO_OK) << error.message;
    raw.assign(layout.packed_block_bytes + 128, fill);
    base = raw.data() + (64 - reinterpret_cast<uintptr_t>(raw.data()) % 64) % 64;
  }
  Block(const Block&) = delete;
};

inline std::vector<float> gaussian(uint64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& value : x) value = normal(random);
  return x;
}

inline bool same_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

/// Appends rows [0, 64) of [row][head][dim].
template <typename C>
void fill(const C& codec, const turbo_kv_shape& shape, uint8_t* block, const std::vector<float>& rows) {
  const uint64_t width = uint64_t{shape.n_kv_heads} * shape.head_dim;
  for (uint32_t row = 0; row < TURBO_KV_BLOCK; ++row)
    ASSERT_EQ(codec->append(codec.self(), &shape, block, row, rows.data() + row * width, 0, shape.n_kv_heads), TURBO_OK);
}

}  // namespace turbo::test
