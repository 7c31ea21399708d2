// Component weight_format/basic on the CPU tier: options and checks over the kernels.
// An instance is immutable after creation, so every call may come from any thread.
#include <turbo/kernel/cpu_isa.hpp>
#include <turbo/plugin.hpp>
#include <turbo/weight_format.hpp>

#include "layout.h"
#include "types.h"

namespace turbo::basic {
namespace {

constexpr uint32_t kFloatTile = 4;

const Kernels* kernels_of(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::avx512) return avx512_kernels();
  if (isa == CpuIsa::avx2) return avx2_kernels();
#endif
  (void)isa;
  return scalar_kernels();
}

// Bytes of the source and of the packed form (0: read in place); throws on shapes this format cannot hold.
struct Sizes {
  uint64_t source, packed;
  uint32_t tile;
};

Sizes checked_sizes(uint32_t type, uint64_t rows, uint64_t cols) {
  const turbo_type_info& info = checked_type(type, rows, cols);
  Sizes sizes{};
  sizes.tile = is_packed(type) ? kTile : kFloatTile;
  uint64_t padded_rows = 0, row_bytes = 0, padded_bytes = 0;
  if (__builtin_add_overflow(rows, kTile - 1, &padded_rows) ||
      __builtin_mul_overflow(cols / info.block_weights, info.block_bytes, &row_bytes) ||
      __builtin_mul_overflow(padded_rows / kTile * kTile, row_bytes, &padded_bytes) ||
      __builtin_mul_overflow(rows, row_bytes, &sizes.source) || cols > UINT64_MAX / 8)
    throw Failure(TURBO_INVALID_ARGUMENT, "basic: a matrix of " + shape_text(rows, cols) + " does not fit in 64 bits");
  sizes.packed = is_packed(type) ? padded_bytes : 0;
  return sizes;
}

class BasicFormat final : public WeightFormat<BasicFormat> {
 public:
  explicit BasicFormat(const Host& host) {
    const CpuIsaChoice choice = choose_cpu_isa();
    if (!choice.problem.empty()) throw Failure(TURBO_UNSUPPORTED, "basic: " + choice.problem, "unset TURBO_CPU_ISA");
    const std::string activations = activations_of(host);
    kernels_ = kernels_of(choice.isa);
    int8_ = activations == "int8";
    host.log(TURBO_LOG_DEBUG,
             std::string("basic kernels: ") + cpu_isa_name(choice.isa) + ", activations " + activations);
  }

  static void probe(const Host&, const turbo_probe_facts&, Probe& answer) {
    const CpuIsaChoice choice = choose_cpu_isa();
    answer.score = choice.problem.empty() ? 100 : 0;
    answer.reason = choice.problem.empty() ? cpu_isa_name(choice.isa) : choice.problem;
  }

  std::span<const turbo_type_info> types() const override { return kTypes; }

  PackedSize packed_size(uint32_t type, uint64_t rows, uint64_t cols) const override {
    const Sizes sizes = checked_sizes(type, rows, cols);
    return {sizes.packed, is_packed(type) ? 64u : 1u, sizes.tile};
  }

  // Types read in place have nothing to write; the checks hold for them too.
  void repack(uint32_t type, uint64_t rows, uint64_t cols, std::span<const std::byte> source, void* packed,
              uint64_t row_begin, uint64_t row_end) const override {
    const Sizes sizes = checked_sizes(type, rows, cols);
    check_repack(sizes.source, source.size(), rows, row_begin, row_end, sizes.tile);
    if (is_packed(type))
      repack_rows(type, reinterpret_cast<const uint8_t*>(source.data()), rows, cols, row_begin, row_end,
                  static_cast<uint8_t*>(packed));
  }

  bool int8(uint32_t type) const { return int8_ && is_packed(type); }

  void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end,
                   float* dst) const noexcept override {
    basic::decode_rows(matrix, row_begin, row_end, dst);
  }

  const char* activation_id(uint32_t type) const noexcept override { return int8(type) ? "basic:i8g32" : "f32"; }

  uint64_t activation_bytes(uint32_t type, uint64_t cols) const noexcept override {
    return int8(type) ? activation_i8_bytes(cols) : round_up(cols * sizeof(float), 64);
  }

  void prepare_row(uint32_t type, const float* x, uint64_t cols, void* dst) const noexcept override {
    if (int8(type)) return kernels_->prepare_i8(x, cols, dst);
    memcpy(dst, x, cols * sizeof(float));
    memset(static_cast<float*>(dst) + cols, 0, round_up(cols * sizeof(float), 64) - cols * sizeof(float));
  }

  void matmul(const turbo_matmul& args) const noexcept override {
    if (args.out_begin < args.out_end) (int8(args.matrix->type) ? kernels_->matmul_i8 : kernels_->matmul_f32)(&args);
  }

 private:
  const Kernels* kernels_;
  bool int8_;
};

}  // namespace
}  // namespace turbo::basic

TURBO_PLUGIN("dev.turbo.quant_basic", "Plain and 4/8-bit weights", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::basic::BasicFormat>(TURBO_KIND_WEIGHT_FORMAT, "basic", TURBO_TIER_CPU,
                                                         turbo::basic::kOptions))
