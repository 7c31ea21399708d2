// Modes, kernels, goldens and blocks for the tests of the rotated codecs.
#pragma once

#include "unit/kv_float/library.h"

#include <turbo/fake/host.hpp>
#include <turbo/kernel/rotated_kv/codec.hpp>
#include <turbo/kernel/rotated_kv/reference.hpp>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

namespace turbo::test {

using namespace rotated_kv;

inline const std::vector<Mode>& modes() {
  static const std::vector<Mode> all = {{"tq2", 2, Turn::signs}, {"tq3", 3, Turn::signs}, {"tq4", 4, Turn::signs},
                                        {"rq3_planar", 3, Turn::givens}, {"rq4_planar", 4, Turn::givens},
                                        {"rq3_iso", 3, Turn::quaternion}, {"rq4_iso", 4, Turn::quaternion}};
  return all;
}
inline const Mode& mode_of(const std::string& name) {
  for (const Mode& mode : modes())
    if (name == mode.name) return mode;
  ADD_FAILURE() << "no mode " << name;
  return modes()[0];
}

struct NamedKernels { std::string isa; const Kernels* kernels; };

/// Tables that this machine can run, plainest first; "avx512" is the one without VBMI.
inline std::vector<NamedKernels> all_kernels() {
  const CpuFeatures has = cpu_features();
  std::vector<NamedKernels> usable = {{"scalar", &scalar_kernels()}};
  if (has.avx2) usable.push_back({"avx2", &avx2_kernels()});
  if (has.avx512) usable.push_back({"avx512", &avx512_kernels()});
  if (has.vbmi) usable.push_back({"vbmi", &vbmi_kernels()});
  return usable;
}
inline const Kernels& widest_kernels() {
  static const Kernels* const widest = all_kernels().back().kernels;
  return *widest;
}

inline const nlohmann::json& goldens() {
  static const nlohmann::json all = nlohmann::json::parse(std::ifstream(std::string(TURBO_TEST_DATA) + "/golden/kv_rotated.json"));
  return all;
}

/// One encoded vector outside of any page: codes, then scales; garbage around.
struct Row {
  std::vector<uint8_t> page;
  const Scheme& scheme;
  uint32_t said = 0;
  explicit Row(const Scheme& s) : page(s.page.bytes, 0xa5), scheme(s) {}
  uint32_t encode(const Kernels& k, const float* x) {
    return said = k.encode(scheme, x, page.data(), page.data() + scale_offset(scheme.page, 0));
  }
  const uint8_t* codes() const { return page.data(); }
  double scale() const { return reference_scale(scheme, page.data(), 0, 0); }
  std::vector<float> decode(const Kernels& k) const {
    const std::vector<double> y = reference_levels(scheme, page.data(), 0);
    std::vector<float> rotated(y.begin(), y.end()), x(scheme.d);
    k.unrotate(scheme.rotation, rotated.data(), x.data());
    return x;
  }
};

inline Library& library_of(const std::string& component) {
  static Library tq(std::string(TURBO_TEST_PLUGINS) + "/kv_turboquant/libturbo_kv_turboquant_cpu.so");
  static Library rq(std::string(TURBO_TEST_PLUGINS) + "/kv_rotorquant/libturbo_kv_rotorquant_cpu.so");
  return component[0] == 't' ? tq : rq;
}

using OptionMap = std::map<std::string, fake::Option>;

/// A component of the built plugins.
struct Codec {
  fake::Host host;
  Instance<turbo_kv_codec> instance;
  explicit Codec(const std::string& name, const OptionMap& options = {}, const std::string& isa = {})
      : instance((host.options = options, library_of(name).component(name)), TURBO_KV_CODEC_DRAFT, host.raw(), isa) {}
  const turbo_kv_codec* operator->() const { return instance.table(); }
  void* self() const { return instance.self(); }
};

inline turbo_kv_shape shape_of(uint32_t side, uint32_t heads, uint32_t dim, uint32_t layer = 0) {
  return {sizeof(turbo_kv_shape), side, layer, 4, heads, dim};
}

/// Both forms of one block, filled with garbage, and guards behind them.
struct Blocks {
  static constexpr size_t kGuard = 64;
  turbo_kv_layout layout{sizeof(turbo_kv_layout)};
  std::vector<uint8_t> open_raw, packed_raw;
  uint8_t *open = nullptr, *packed = nullptr;
  Blocks(const Codec& codec, const turbo_kv_shape& shape, uint8_t garbage = 0xff) : garbage_(garbage) {
    turbo_error error{sizeof(turbo_error)};
    EXPECT_EQ(codec->layout(codec.self(), &shape, &layout, &error), TURBO_OK) << error.message;
    open = place(open_raw, layout.open_block_bytes);
    packed = place(packed_raw, layout.packed_block_bytes);
  }
  void expect_guards() const {
    for (size_t i = 0; i < kGuard; ++i) {
      EXPECT_EQ(open[layout.open_block_bytes + i], garbage_);
      EXPECT_EQ(packed[layout.packed_block_bytes + i], garbage_);
    }
  }

 private:
  uint8_t* place(std::vector<uint8_t>& raw, uint64_t bytes) const {
    raw.assign(bytes + 64 + kGuard, garbage_);
    return raw.data() + (64 - reinterpret_cast<uintptr_t>(raw.data()) % 64) % 64;
  }
  uint8_t garbage_;
};

inline std::vector<float> normals(uint64_t seed, size_t n, float size = 1.0f) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

inline bool same_bits(const float* a, const float* b, size_t n) { return std::memcmp(a, b, n * sizeof(float)) == 0; }

}  // namespace turbo::test
