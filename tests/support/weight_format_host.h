// Loads a built weight-format plugin through its ABI, with the instruction set and the "activations" option of a test's
// choice, and runs matrices through it. For tests only; one thread.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <turbo/abi/plugin.h>
#include <turbo/abi/weight_format.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <turbo/kernel/cpu_isa.hpp>
#include <vector>

namespace turbo::testing {

/// "scalar", "avx2", "avx512": those that this machine can run.
inline std::vector<std::string> machine_isas() {
  std::vector<std::string> names;
  for (CpuIsa isa : {CpuIsa::scalar, CpuIsa::avx2, CpuIsa::avx512})
    if (isa <= widest_cpu_isa()) names.push_back(cpu_isa_name(isa));
  return names;
}

/// 64-byte aligned bytes.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes)
      : data_(static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 127) / 64 * 64)), &std::free) {
    std::memset(data_.get(), 0xa5, bytes);
  }
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }

 private:
  std::unique_ptr<uint8_t, void (*)(void*)> data_;
};

/// A host whose only service is the config of one string option.
class OptionHost {
 public:
  explicit OptionHost(std::string activations) : activations_(std::move(activations)) {
    config_ = {sizeof(turbo_host_config), 0, this, &get_string, &get_i64, &get_f64, &get_bool};
    host_ = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, this, &query};
  }
  const turbo_host* get() const { return &host_; }

 private:
  static turbo_status get_string(void* ctx, const char* key, const char** value) {
    if (std::strcmp(key, "activations") != 0) return TURBO_NOT_FOUND;
    *value = static_cast<OptionHost*>(ctx)->activations_.c_str();
    return TURBO_OK;
  }
  static turbo_status get_i64(void*, const char*, int64_t*) { return TURBO_NOT_FOUND; }
  static turbo_status get_f64(void*, const char*, double*) { return TURBO_NOT_FOUND; }
  static turbo_status get_bool(void*, const char*, uint32_t*) { return TURBO_NOT_FOUND; }
  static const void* query(const turbo_host* host, const char* id) {
    return std::strcmp(id, TURBO_HOST_CONFIG) == 0 ? &static_cast<OptionHost*>(host->ctx)->config_ : nullptr;
  }
  std::string activations_;
  turbo_host_config config_;
  turbo_host host_;
};

/// The plugin of a folder under plugins/ (opened once, never closed).
inline const turbo_plugin* load_plugin(const std::string& folder, uint32_t abi_major = TURBO_ABI_MAJOR) {
  const std::string path =
      std::string(TURBO_BUILD) + "/lib/turbo/plugins/" + folder + "/libturbo_" + folder + "_cpu.so";
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    ADD_FAILURE() << dlerror();
    std::abort();
  }
  return reinterpret_cast<turbo_plugin_query_fn>(dlsym(library, TURBO_PLUGIN_QUERY_SYMBOL))(abi_major, TURBO_ABI_MINOR);
}

struct PackedMatrix;

class Format {
 public:
  Format(const std::string& folder, const std::string& isa, const std::string& activations = "int8")
      : host_(activations) {
    setenv("TURBO_CPU_ISA", isa.c_str(), 1);
    component_ = &load_plugin(folder)->components[0];
    status = component_->create(host_.get(), &self, &error);
    unsetenv("TURBO_CPU_ISA");
    table = static_cast<const turbo_weight_format*>(component_->query_interface(TURBO_WEIGHT_FORMAT_1));
  }
  ~Format() {
    if (status == TURBO_OK) component_->destroy(self);
  }
  Format(const Format&) = delete;
  Format& operator=(const Format&) = delete;

  turbo_status packed_size(uint32_t type, uint64_t rows, uint64_t cols) {
    return table->packed_size(self, type, rows, cols, &bytes, &alignment, &tile, &error);
  }

  /// One prepared row after another; rows of cols floats each.
  Buffer prepare(uint32_t type, const std::vector<float>& x, uint64_t cols) const {
    const uint64_t stride = table->activation_bytes(self, type, cols), n = x.size() / cols;
    Buffer buffer(stride * n);
    for (uint64_t r = 0; r < n; ++r)
      table->prepare_row(self, type, x.data() + r * cols, cols, buffer.data() + r * stride);
    return buffer;
  }

  /// out (n x rows) for outputs [begin, end), at a stride of out_stride floats.
  void matmul(const turbo_matrix& matrix, const Buffer& activations, uint32_t n, float* out, uint64_t out_stride,
              uint64_t begin, uint64_t end) const {
    const uint64_t stride = table->activation_bytes(self, matrix.type, matrix.cols);
    const turbo_matmul call = {sizeof(turbo_matmul), n,     &matrix, activations.data(), stride, out,
                               out_stride,           begin, end};
    table->matmul(self, &call);
  }

  std::vector<float> matmul(const turbo_matrix& matrix, const std::vector<float>& x) const {
    const uint32_t n = static_cast<uint32_t>(x.size() / matrix.cols);
    const Buffer activations = prepare(matrix.type, x, matrix.cols);
    std::vector<float> out(n * matrix.rows, -12345.0f);
    matmul(matrix, activations, n, out.data(), matrix.rows, 0, matrix.rows);
    return out;
  }

  const turbo_weight_format* table = nullptr;
  void* self = nullptr;
  turbo_status status = TURBO_OK;
  turbo_error error{sizeof(turbo_error)};
  uint64_t bytes = 0, alignment = 0;
  uint32_t tile = 0;

 private:
  OptionHost host_;
  const turbo_component* component_;
};

/// A source matrix in the format's resident form. The source must outlive it when it is read in place.
struct PackedMatrix {
  PackedMatrix(Format& format, uint32_t type, uint64_t rows, uint64_t cols, const uint8_t* source,
               uint64_t source_bytes)
      : buffer(format.packed_size(type, rows, cols) == TURBO_OK ? format.bytes : 0) {
    EXPECT_EQ(format.table->repack(format.self, type, rows, cols, source, source_bytes, buffer.data(), 0, rows,
                                   &format.error),
              TURBO_OK)
        << format.error.message;
    matrix = {sizeof(turbo_matrix), type, rows, cols, format.bytes ? buffer.data() : source, format.bytes};
  }
  Buffer buffer;
  turbo_matrix matrix;
};

/// Same bits; two NaN count as equal.
inline bool same_bits(float a, float b) { return std::memcmp(&a, &b, 4) == 0 || (std::isnan(a) && std::isnan(b)); }

inline ::testing::AssertionResult same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return ::testing::AssertionFailure() << a.size() << " and " << b.size() << " values";
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i]))
      return ::testing::AssertionFailure() << "value " << i << ": " << a[i] << " and " << b[i];
  return ::testing::AssertionSuccess();
}

/// The definition of the int8 activation groups, spelled out once more for the tests.
struct QuantizedRow {
  QuantizedRow(const float* x, uint64_t cols, uint64_t group) : q(cols, 0) {
    for (uint64_t g = 0; g < cols / group; ++g) {
      float largest = 0;
      bool finite = true;
      for (uint64_t j = g * group; j < (g + 1) * group; ++j) {
        finite = finite && std::isfinite(x[j]);
        largest = std::fmax(largest, std::fabs(x[j]));
      }
      float d = finite ? largest / 127.0f : std::nanf("");
      if (d < 1.17549435e-38f) d = 0;
      scale.push_back(d);
      if (d > 0)
        for (uint64_t j = g * group; j < (g + 1) * group; ++j)
          q[j] = static_cast<int>(std::fmin(127.0f, std::fmax(-127.0f, std::rint(x[j] * (1.0f / d)))));
    }
  }
  std::vector<float> scale;
  std::vector<int> q;
};

}  // namespace turbo::testing
