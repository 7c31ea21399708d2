// Base class of weight formats over abi/weight_format.h. repack and the compute calls are [team]: several threads at
// once on disjoint ranges, so overrides are const; the compute calls allocate nothing and do not throw.
#pragma once

#include <turbo/abi/weight_format.h>
#include <turbo/plugin.hpp>

#include <cstdint>
#include <span>

namespace turbo {

struct PackedSize {
  uint64_t bytes = 0;      // 0: kernels read the source in place
  uint64_t alignment = 64;
  uint32_t tile = 1;       // outputs are computed in multiples of it
};

template <typename T>
class WeightFormat {
 public:
  virtual ~WeightFormat() = default;

  /// The types served; the array outlives the instance.
  virtual std::span<const turbo_type_info> types() const = 0;
  /// [load] Throws Failure when cols is no whole number of blocks or sizes overflow.
  virtual PackedSize packed_size(uint32_t type, uint64_t rows, uint64_t cols) const = 0;
  /// [load][team] Source rows [row_begin, row_end); source spans the whole matrix and may be short: check it.
  virtual void repack(uint32_t type, uint64_t rows, uint64_t cols, std::span<const std::byte> source, void* packed,
                      uint64_t row_begin, uint64_t row_end) const = 0;
  virtual void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst) const noexcept = 0;
  /// The default: plain f32 activations, padded to 64 bytes.
  virtual const char* activation_id(uint32_t /*type*/) const noexcept { return "f32"; }
  virtual uint64_t activation_bytes(uint32_t /*type*/, uint64_t cols) const noexcept { return (cols * sizeof(float) + 63) / 64 * 64; }
  virtual void prepare_row(uint32_t /*type*/, const float* x, uint64_t cols, void* dst) const noexcept {
    std::memcpy(dst, x, cols * sizeof(float));
  }
  virtual void matmul(const turbo_matmul& args) const noexcept = 0;

  static const void* interface(std::string_view id) {
    static constexpr turbo_weight_format table = {sizeof(turbo_weight_format), 0, &c_types, &c_packed_size, &c_repack,
                                                  &c_decode_rows, &c_activation_id, &c_activation_bytes, &c_prepare_row, &c_matmul};
    return id == TURBO_WEIGHT_FORMAT_1 ? &table : nullptr;
  }

 private:
  static const T& at(void* self) { return *static_cast<const T*>(self); }
  static constexpr bool checked = TURBO_SDK_CHECK != 0;

  static turbo_status c_types(void* self, const turbo_type_info** types, uint32_t* n) noexcept {
    return guarded(nullptr, [&] {
      detail::check(self && types && n, "types");
      const auto served = at(self).types();
      *types = served.data();
      *n = static_cast<uint32_t>(served.size());
    });
  }
  static turbo_status c_packed_size(void* self, uint32_t type, uint64_t rows, uint64_t cols, uint64_t* bytes, uint64_t* alignment,
                                    uint32_t* tile, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(self && bytes && alignment && tile, "packed_size");
      const PackedSize size = at(self).packed_size(type, rows, cols);
      *bytes = size.bytes;
      *alignment = size.alignment;
      *tile = size.tile;
    });
  }
  static turbo_status c_repack(void* self, uint32_t type, uint64_t rows, uint64_t cols, const void* source, uint64_t source_bytes,
                               void* packed, uint64_t row_begin, uint64_t row_end, turbo_error* error) noexcept {
    return guarded(error, [&] {
      detail::check(self && source && packed && row_begin <= row_end && row_end <= rows, "repack");
      at(self).repack(type, rows, cols, {static_cast<const std::byte*>(source), static_cast<size_t>(source_bytes)}, packed, row_begin, row_end);
    });
  }
  static void c_decode_rows(void* self, const turbo_matrix* matrix, uint64_t row_begin, uint64_t row_end, float* dst) noexcept {
    if (checked && (!self || !matrix || !dst || row_begin > row_end || row_end > matrix->rows)) return;
    at(self).decode_rows(*matrix, row_begin, row_end, dst);
  }
  static const char* c_activation_id(void* self, uint32_t type) noexcept { return self ? at(self).activation_id(type) : ""; }
  static uint64_t c_activation_bytes(void* self, uint32_t type, uint64_t cols) noexcept {
    return self ? at(self).activation_bytes(type, cols) : 0;
  }
  static void c_prepare_row(void* self, uint32_t type, const float* x, uint64_t cols, void* dst) noexcept {
    if (checked && (!self || !x || !dst)) return;
    at(self).prepare_row(type, x, cols, dst);
  }
  static void c_matmul(void* self, const turbo_matmul* args) noexcept {
    if (checked && (!self || !args || !args->matrix || !args->activations || !args->out || args->out_begin > args->out_end ||
                    args->out_end > args->matrix->rows))
      return;
    at(self).matmul(*args);
  }
};

}  // namespace turbo
