// Component weight_format/q1_0 on the hip tier: the host half. Packs, checks, chooses kernels and fills their structs; the
// pack launches. Immutable between attach and detach, so [load] and [engine] calls need no lock.
#include <turbo/device_client.hpp>
#include <turbo/kernel/half.h>
#include <turbo/weight_format.hpp>

#include "choice.h"

extern "C" {
extern const turbo_code_object turbo_kernels_product[], turbo_kernels_rows[];
extern const uint32_t turbo_n_kernels_product, turbo_n_kernels_rows;
}

namespace turbo::q1 {
namespace {

constexpr uint64_t kBlockBytes = 18;                 // in the file: f16 scale, 16 bytes of sign bits
constexpr uint64_t kMostRows = uint64_t{1} << 31;    // rows and columns are 32-bit numbers in kernels
constexpr uint64_t kMostUnits = uint64_t{1} << 29;

constexpr const char* kOptions =
    R"({"activations": {"type": "string", "default": "int8", "enum": ["int8", "f32"],
     "doc": "int8: activations rounded to 8 bits, a scale for 128 columns (cpu) or 32 (hip); f32: kept as they are, the slower reference"}})";

constexpr turbo_type_info kTypes[] = {{sizeof(turbo_type_info), TURBO_TYPE_Q1_0, "q1_0", layout::kGroup, kBlockBytes}};

uint64_t checked_source_bytes(uint32_t type, uint64_t rows, uint64_t cols) {
  if (type != TURBO_TYPE_Q1_0)
    throw Failure(TURBO_UNSUPPORTED, "q1_0: tensor type " + std::to_string(type) + " is not served, only 41 (Q1_0)");
  const std::string shape = std::to_string(rows) + " x " + std::to_string(cols);
  if (rows == 0 || cols == 0 || cols % layout::kGroup != 0)
    throw Failure(TURBO_INVALID_ARGUMENT, "q1_0: a matrix of " + shape + " is not a whole number of blocks of 128 weights",
                  "check that the file is a complete Q1_0 model; rows of Q1_0 are never padded");
  if (rows > kMostRows || cols > kMostRows)
    throw Failure(TURBO_INVALID_ARGUMENT, "q1_0: a matrix of " + shape + " is beyond 2^31 rows or columns");
  return rows * (cols / layout::kGroup * kBlockBytes);
}

// The file has column c in bit c % 8 of byte c / 8; sign_place says where kernels want it. Byte i takes bit i of each of
// the file's eight half-words of 16 columns: even ones to its low half, odd ones to its high half.
void place_signs(const uint8_t* source, uint8_t* dst) {
  for (uint32_t part = 0; part < 2; ++part) {  // columns 0..7 and 8..15 of the half-words
    uint64_t rows = 0;                         // an 8 x 8 matrix of bits: byte t is the row that goes to bit t
    for (uint32_t t = 0; t < 8; ++t) rows |= uint64_t{source[(t % 4 * 2 + t / 4) * 2 + part]} << (8 * t);
    uint64_t swap = (rows ^ rows >> 7) & 0x00aa00aa00aa00aaULL;
    rows ^= swap ^ swap << 7;
    swap = (rows ^ rows >> 14) & 0x0000cccc0000ccccULL;
    rows ^= swap ^ swap << 14;
    swap = (rows ^ rows >> 28) & 0x00000000f0f0f0f0ULL;
    rows ^= swap ^ swap << 28;
    std::memcpy(dst + 8 * part, &rows, 8);
  }
}

class Q1Format final : public WeightFormat<Q1Format> {
 public:
  explicit Q1Format(const Host& host) {
    const std::string activations = host.option("activations", std::string("int8"));
    if (activations != "int8" && activations != "f32")
      throw Failure(TURBO_INVALID_ARGUMENT, "q1_0: activations is \"" + activations + "\"", "use int8 or f32");
    int8_ = activations == "int8";
  }

  static const void* interface(std::string_view id) {
    const void* table = weight_format_device_interface<Q1Format>(id);
    return table ? table : WeightFormat<Q1Format>::interface(id);
  }

  std::span<const turbo_type_info> types() const override { return kTypes; }

  PackedSize packed_size(uint32_t type, uint64_t rows, uint64_t cols) const override {
    checked_source_bytes(type, rows, cols);
    return {layout::packed_bytes(rows, cols / layout::kGroup), 256, layout::kTile};
  }

  void repack(uint32_t type, uint64_t rows, uint64_t cols, std::span<const std::byte> source, void* packed, uint64_t row_begin,
              uint64_t row_end) const override {
    const uint64_t needed = checked_source_bytes(type, rows, cols), n_groups = cols / layout::kGroup;
    if (source.size() < needed)
      throw Failure(TURBO_CORRUPT_INPUT,
                    "q1_0: tensor data ends early: " + std::to_string(needed) + " bytes needed, " + std::to_string(source.size()) + " present",
                    "fetch the model file again");
    if (row_begin > row_end || row_end > rows || row_begin % layout::kTile != 0 || (row_end % layout::kTile != 0 && row_end != rows))
      throw Failure(TURBO_INVALID_ARGUMENT, "q1_0: rows " + std::to_string(row_begin) + " to " + std::to_string(row_end) +
                                                " are no tile-aligned range of the matrix");
    uint8_t* const signs = static_cast<uint8_t*>(packed);
    uint8_t* const scales = signs + layout::sign_bytes(rows, n_groups);
    const auto* const in = reinterpret_cast<const uint8_t*>(source.data());
    const uint64_t filled_end = row_end == rows ? layout::units_of(rows) * layout::kUnit : row_end;
    for (uint64_t row = row_begin; row < filled_end; ++row)
      for (uint64_t g = 0; g < n_groups; ++g) {
        const uint64_t word = layout::word_of(row, g, n_groups);
        if (row >= rows) {
          std::memset(signs + word * 16, 0, 16);
          std::memset(scales + word * 2, 0, 2);
          continue;
        }
        const uint8_t* const block = in + (row * n_groups + g) * kBlockBytes;
        std::memcpy(scales + word * 2, block, 2);
        place_signs(block + 2, signs + word * 16);
      }
  }

  void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst) const noexcept override {
    const uint64_t n_groups = matrix.cols / layout::kGroup;
    const auto* const signs = static_cast<const uint8_t*>(matrix.packed);
    const uint8_t* const scales = signs + layout::sign_bytes(matrix.rows, n_groups);
    for (uint64_t row = row_begin; row < row_end; ++row)
      for (uint64_t g = 0; g < n_groups; ++g) {
        const uint64_t word = layout::word_of(row, g, n_groups);
        uint16_t half;
        std::memcpy(&half, scales + word * 2, 2);
        const float scale = turbo_f16_to_f32(half);
        for (uint32_t i = 0; i < layout::kGroup; ++i) {
          const layout::SignPlace at = layout::sign_place(i);
          *dst++ = signs[word * 16 + at.byte] >> at.bit & 1 ? scale : -scale;
        }
      }
  }

  // A host copy is decoded only; products are the device's.
  void matmul(const turbo_matmul&) const noexcept override {}

  void attach(const turbo_device* device) {
    kernels_.attach(device, {{turbo_kernels_product, turbo_n_kernels_product,
                              {"q1_matvec_1", "q1_matvec_2", "q1_matvec_4", "q1_gemm_2", "q1_gemm_4", "q1_prepare"}},
                             {turbo_kernels_rows, turbo_n_kernels_rows, {"q1_gather", "q1_exact"}}});
  }
  void detach() noexcept { kernels_.detach(); }

  void check(const turbo_device_matmul& args) const {
    check_device_matmul(args, "q1_0", [](const turbo_matrix& m) { checked_source_bytes(m.type, m.rows, m.cols); });
    uint64_t units = 0;
    for (uint32_t i = 0; i < args.n_matrices; ++i) units += layout::units_of(args.matrices[i]->rows);
    if (units > kMostUnits) throw Failure(TURBO_UNSUPPORTED, "q1_0: matrices of 2^34 rows in one product");
    if (!int8_ && (args.norm || args.n_matrices != 1 || args.fuse != TURBO_FUSE_NONE || args.x_q8.rows || args.out_q8.rows))
      throw Failure(TURBO_UNSUPPORTED, "q1_0: nothing is fused when activations are f32");
    if (args.out_q8.rows && args.matrices[0]->rows % layout::kUnit != 0)
      throw Failure(TURBO_UNSUPPORTED, "q1_0: bytes of " + std::to_string(args.matrices[0]->rows) + " outputs, which are not tiles of 32");
  }

  uint64_t workspace_bytes(const turbo_device_matmul& args) const {
    check(args);
    return int8_ && !args.x_q8.rows ? TURBO_DEVICE_Q8_BYTES(args.max_rows, args.cols) : 0;
  }

  void matmul(turbo_stream* stream, const turbo_device_matmul& args) const {
    if (!int8_) return exact_product(stream, args);
    layout::Product p = product_of(args);
    turbo_device_q8 x = args.x_q8;
    p.x_rows = args.x_rows;
    if (!x.rows) {
      x = {static_cast<uint8_t*>(args.workspace), args.max_rows};
      const layout::Prepare rows = {args.x, args.x_stride, args.norm, args.n_rows, args.x_rows, gpu::q8_rows(x, args.cols)};
      kernels_.launch(stream, prepare, args.max_rows, 1, layout::kPrepareThreads, 0, rows);
      p.x_rows = nullptr;
    }
    const gpu::Q8Rows bytes = gpu::q8_rows(x, args.cols);
    p.codes = bytes.codes;
    p.scales = bytes.scales;
    p.squares = args.norm ? bytes.squares : nullptr;
    const turbo_device& device = *kernels_.device();
    const Choice choice = choose(args.max_rows, p.n_groups, p.n_units, args.fuse >= TURBO_FUSE_SILU, args.norm, device.compute_units ? device.compute_units : 1,
                                 device.max_shared_bytes);
    kernels_.launch(stream, choice.kernel, choice.grid_x, choice.grid_y, choice.threads, choice.shared_bytes, p);
  }

  void check(const turbo_device_gather& args) const {
    if (!int8_ && args.out_q8.rows) throw Failure(TURBO_UNSUPPORTED, "q1_0: activations are f32");
  }

  void gather(turbo_stream* stream, const turbo_device_gather& args) const {
    const turbo_matrix& matrix = *args.matrix;
    const uint32_t n_groups = static_cast<uint32_t>(matrix.cols / layout::kGroup);
    const auto* const signs = static_cast<const uint8_t*>(matrix.packed);
    const layout::Gather rows = {signs, signs + layout::sign_bytes(matrix.rows, n_groups), args.ids, args.n_rows, args.dst, args.dst_stride,
                                 args.out_q8.rows ? gpu::q8_rows(args.out_q8, matrix.cols) : gpu::Q8Rows{}, args.out_norm, n_groups,
                                 static_cast<uint32_t>(matrix.rows)};
    kernels_.launch(stream, q1::gather, args.max_rows, 1, layout::kGatherThreads, 0, rows);
  }

 private:
  static layout::Matrix matrix_of(const turbo_device_matmul& args, uint32_t i, uint32_t first_unit) {
    const turbo_matrix& m = *args.matrices[i];
    const auto* const signs = static_cast<const uint8_t*>(m.packed);
    return {signs, signs + layout::sign_bytes(m.rows, m.cols / layout::kGroup), args.bias[i], args.out[i], args.out_stride[i],
            static_cast<uint32_t>(m.rows), first_unit};
  }

  static layout::Product product_of(const turbo_device_matmul& args) {
    layout::Product p{};
    p.n_groups = static_cast<uint32_t>(args.cols / layout::kGroup);
    for (layout::Matrix& matrix : p.matrix) matrix.first_unit = layout::kNoUnit;
    for (uint32_t i = 0; i < args.n_matrices; ++i) {
      p.matrix[i] = matrix_of(args, i, p.n_units);
      p.n_units += static_cast<uint32_t>(layout::units_of(args.matrices[i]->rows));
    }
    if (args.fuse >= TURBO_FUSE_SILU) p.n_units /= 2;
    p.n_rows = args.n_rows;
    p.eps = args.eps;
    p.residual = args.residual;
    p.residual_stride = args.residual_stride;
    if (args.out_q8.rows) p.out_q8 = gpu::q8_rows(args.out_q8, args.matrices[0]->rows);
    p.out_norm = args.out_norm;
    p.n_matrices = args.n_matrices;
    p.max_rows = args.max_rows;
    p.fuse = args.fuse;
    return p;
  }

  void exact_product(turbo_stream* stream, const turbo_device_matmul& args) const {
    constexpr uint32_t kOutputs = layout::kPrepareThreads / 32;
    const layout::Exact product = {matrix_of(args, 0, 0), args.x, args.x_stride, args.n_rows, args.x_rows,
                                   static_cast<uint32_t>(args.cols / layout::kGroup), 0};
    kernels_.launch(stream, exact, static_cast<uint32_t>((args.matrices[0]->rows + kOutputs - 1) / kOutputs), args.max_rows, layout::kPrepareThreads,
                    0, product);
  }

  DeviceKernels kernels_;
  bool int8_;
};

static_assert(uint32_t{gpu::q1::fuse_add} == TURBO_FUSE_ADD && uint32_t{gpu::q1::fuse_silu} == TURBO_FUSE_SILU &&
              uint32_t{gpu::q1::fuse_gelu} == TURBO_FUSE_GELU && layout::kMatrices == TURBO_FUSED_MATRICES);

}  // namespace
}  // namespace turbo::q1

TURBO_PLUGIN("dev.turbo.quant_q1g128", "Q1_0 weights", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::q1::Q1Format>(TURBO_KIND_WEIGHT_FORMAT, "q1_0", TURBO_TIER_HIP, turbo::q1::kOptions))
