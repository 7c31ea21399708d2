// Component weight_format/q1_0 on the CPU tier: options and checks over the kernels.
// An instance is immutable after creation, so every call may come from any thread.
#include <turbo/kernel/cpu_isa.hpp>
#include <turbo/plugin.hpp>
#include <turbo/weight_format.hpp>

#include "layout.h"

namespace turbo::q1 {
namespace {

constexpr const char* kOptions =
    R"({"activations": {"type": "string", "default": "int8", "enum": ["int8", "f32"],
     "doc": "int8: activations rounded to 8 bits, a scale for 128 columns (cpu) or 32 (hip); f32: kept as they are, the slower reference"}})";

constexpr turbo_type_info kTypes[] = {{sizeof(turbo_type_info), TURBO_TYPE_Q1_0, "q1_0", kBlock, kBlockBytes}};

const Kernels* kernels_of(CpuIsa isa) {
#if defined(__x86_64__)
  if (isa == CpuIsa::avx512) return avx512_kernels();
  if (isa == CpuIsa::avx2) return avx2_kernels();
#endif
  (void)isa;
  return scalar_kernels();
}

// Bytes of the source and of the packed form; throws on shapes this format cannot hold.
struct Sizes {
  uint64_t source, packed;
};

Sizes checked_sizes(uint32_t type, uint64_t rows, uint64_t cols) {
  if (type != TURBO_TYPE_Q1_0)
    throw Failure(TURBO_UNSUPPORTED, "q1_0: tensor type " + std::to_string(type) + " is not served, only 41 (Q1_0)");
  const std::string shape = std::to_string(rows) + " x " + std::to_string(cols);
  if (rows == 0 || cols == 0 || cols % kBlock != 0)
    throw Failure(TURBO_INVALID_ARGUMENT,
                  "q1_0: a matrix of " + shape + " is not a whole number of blocks of 128 weights",
                  "check that the file is a complete Q1_0 model; rows of Q1_0 are never padded");
  Sizes sizes{};
  uint64_t padded_rows = 0, row_bytes = 0;
  if (__builtin_add_overflow(rows, kTile - 1, &padded_rows) ||
      __builtin_mul_overflow(cols / kBlock, kBlockBytes, &row_bytes) ||
      __builtin_mul_overflow(padded_rows / kTile * kTile, row_bytes, &sizes.packed) ||
      __builtin_mul_overflow(rows, row_bytes, &sizes.source))
    throw Failure(TURBO_INVALID_ARGUMENT, "q1_0: a matrix of " + shape + " does not fit in 64 bits");
  return sizes;
}

class Q1Format final : public WeightFormat<Q1Format> {
 public:
  explicit Q1Format(const Host& host) {
    const CpuIsaChoice choice = choose_cpu_isa();
    if (!choice.problem.empty()) throw Failure(TURBO_UNSUPPORTED, "q1_0: " + choice.problem, "unset TURBO_CPU_ISA");
    const std::string activations = host.option("activations", std::string("int8"));
    if (activations != "int8" && activations != "f32")
      throw Failure(TURBO_INVALID_ARGUMENT, "q1_0: activations is \"" + activations + "\"", "use int8 or f32");
    kernels_ = kernels_of(choice.isa);
    int8_ = activations == "int8";
    host.log(TURBO_LOG_DEBUG,
             std::string("q1_0 kernels: ") + cpu_isa_name(choice.isa) + ", activations " + activations);
  }

  static void probe(const Host&, const turbo_probe_facts&, Probe& answer) {
    const CpuIsaChoice choice = choose_cpu_isa();
    answer.score = choice.problem.empty() ? 100 : 0;
    answer.reason = choice.problem.empty() ? cpu_isa_name(choice.isa) : choice.problem;
  }

  std::span<const turbo_type_info> types() const override { return kTypes; }

  PackedSize packed_size(uint32_t type, uint64_t rows, uint64_t cols) const override {
    return {checked_sizes(type, rows, cols).packed, 64, kTile};
  }

  void repack(uint32_t type, uint64_t rows, uint64_t cols, std::span<const std::byte> source, void* packed,
              uint64_t row_begin, uint64_t row_end) const override {
    const Sizes sizes = checked_sizes(type, rows, cols);
    if (source.size() < sizes.source)
      throw Failure(TURBO_CORRUPT_INPUT,
                    "q1_0: tensor data ends early: " + std::to_string(sizes.source) + " bytes needed, " +
                        std::to_string(source.size()) + " present",
                    "fetch the model file again");
    if (row_begin > row_end || row_end > rows || row_begin % kTile != 0 || (row_end % kTile != 0 && row_end != rows))
      throw Failure(TURBO_INVALID_ARGUMENT, "q1_0: rows " + std::to_string(row_begin) + " to " +
                                                std::to_string(row_end) + " are no tile-aligned range of the matrix");
    repack_rows(kernels_->layout, reinterpret_cast<const uint8_t*>(source.data()), rows, cols, row_begin, row_end,
                static_cast<uint8_t*>(packed));
  }

  void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end,
                   float* dst) const noexcept override {
    q1::decode_rows(kernels_->layout, matrix, row_begin, row_end, dst);
  }

  // The int8 row holds tables that only this plugin reads, so its id is its own.
  const char* activation_id(uint32_t) const noexcept override { return int8_ ? "q1_0:i8g128" : "f32"; }

  uint64_t activation_bytes(uint32_t, uint64_t cols) const noexcept override {
    return int8_ ? kernels_->activation_bytes(cols) : round_up(cols * sizeof(float), 64);
  }

  void prepare_row(uint32_t, const float* x, uint64_t cols, void* dst) const noexcept override {
    if (int8_)
      kernels_->prepare_i8(x, cols, dst);
    else
      memcpy(dst, x, cols * sizeof(float));
  }

  void matmul(const turbo_matmul& args) const noexcept override {
    (int8_ ? kernels_->matmul_i8 : kernels_->matmul_f32)(&args);
  }

 private:
  const Kernels* kernels_;
  bool int8_;
};

}  // namespace
}  // namespace turbo::q1

TURBO_PLUGIN("dev.turbo.quant_q1g128", "Q1_0 weights", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::q1::Q1Format>(TURBO_KIND_WEIGHT_FORMAT, "q1_0", TURBO_TIER_CPU,
                                                   turbo::q1::kOptions))
