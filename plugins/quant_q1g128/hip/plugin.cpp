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
constexpr uint64_t kMostTiles = uint64_t{1} << 30;

constexpr const char* kOptions =
    R"({"activations": {"type": "string", "default": "int8", "enum": ["int8", "f32"],
     "doc": "int8: activations rounded to 8 bits per group of 128; f32: kept as they are, the slower reference"}})";

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
    const uint64_t filled_end = row_end == rows ? layout::tiles_of(rows) * layout::kTile : row_end;
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
        std::memcpy(signs + word * 16, block + 2, 16);
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
        for (uint32_t i = 0; i < layout::kGroup; ++i) *dst++ = signs[word * 16 + i / 8] >> i % 8 & 1 ? scale : -scale;
      }
  }

  // A host copy is decoded only; products are the device's.
  void matmul(const turbo_matmul&) const noexcept override {}

  void attach(const turbo_device* device) {
    wide_ = std::string_view(device->isa).substr(0, 3) != "gfx";
    std::vector<KernelFile> files = {{turbo_kernels_product, turbo_n_kernels_product,
                                      {"q1_matvec_1", "q1_matvec_2", "q1_matvec_4", "q1_matvec_8", "q1_gemm_4", "q1_prepare"}},
                                     {turbo_kernels_rows, turbo_n_kernels_rows, {"q1_gather", "q1_exact"}}};
    if (wide_) files.push_back({turbo_kernels_product, turbo_n_kernels_product, {"q1_gemm_8"}});
    kernels_.attach(device, files);
  }
  void detach() noexcept { kernels_.detach(); }

  void check(const turbo_device_matmul& args) const {
    check_device_matmul(args, "q1_0", [](const turbo_matrix& m) { checked_source_bytes(m.type, m.rows, m.cols); });
    uint64_t tiles = 0;
    for (uint32_t i = 0; i < args.n_matrices; ++i) tiles += layout::tiles_of(args.matrices[i]->rows);
    if (tiles > kMostTiles) throw Failure(TURBO_UNSUPPORTED, "q1_0: matrices of 2^34 rows in one product");
    if (!int8_ && (args.norm || args.n_matrices != 1 || args.fuse != TURBO_FUSE_NONE))
      throw Failure(TURBO_UNSUPPORTED, "q1_0: nothing is fused when activations are f32");
  }

  uint64_t workspace_bytes(const turbo_device_matmul& args) const {
    check(args);
    const Plan plan = plan_of(args);
    return plan.choice.prepared ? plan.plane_bytes + uint64_t{args.max_rows} * plan.product.n_groups * sizeof(layout::GroupScale) : 0;
  }

  void matmul(turbo_stream* stream, const turbo_device_matmul& args) const {
    Plan plan = plan_of(args);
    const Choice& choice = plan.choice;
    if (!int8_) {
      constexpr uint32_t kOutputs = layout::kPrepareThreads / 32;
      const uint32_t blocks = static_cast<uint32_t>((args.matrices[0]->rows + kOutputs - 1) / kOutputs);
      kernels_.launch(stream, exact, blocks, args.max_rows, layout::kPrepareThreads, 0, plan.product);
      return;
    }
    if (choice.prepared) {
      plan.product.planes = static_cast<uint8_t*>(args.workspace);
      plan.product.scales = reinterpret_cast<layout::GroupScale*>(plan.product.planes + plan.plane_bytes);
      kernels_.launch(stream, prepare, args.max_rows, 1, layout::kPrepareThreads, 0, plan.product);
    }
    kernels_.launch(stream, choice.kernel, choice.grid_x, choice.grid_y, choice.threads, choice.shared_bytes, plan.product);
  }

  void gather(turbo_stream* stream, const turbo_matrix& matrix, const int32_t* ids, const uint32_t* n_rows, uint32_t max_rows, float* dst,
              uint64_t dst_stride) const {
    const uint32_t n_groups = static_cast<uint32_t>(matrix.cols / layout::kGroup);
    const auto* const signs = static_cast<const uint8_t*>(matrix.packed);
    const layout::Gather args = {signs,      signs + layout::sign_bytes(matrix.rows, n_groups), ids, n_rows, dst, dst_stride, n_groups,
                                 static_cast<uint32_t>(matrix.rows)};
    kernels_.launch(stream, q1::gather, max_rows, 1, layout::kGatherThreads, 0, args);
  }

 private:
  struct Plan {
    layout::Product product;
    Choice choice;
    uint64_t plane_bytes;  // of the workspace, before the scales
  };

  Plan plan_of(const turbo_device_matmul& args) const {
    Plan plan{};
    layout::Product& p = plan.product;
    p.n_groups = static_cast<uint32_t>(args.cols / layout::kGroup);
    for (layout::Matrix& matrix : p.matrix) matrix.first_tile = layout::kNoTile;
    for (uint32_t i = 0; i < args.n_matrices; ++i) {
      const turbo_matrix& m = *args.matrices[i];
      const auto* const signs = static_cast<const uint8_t*>(m.packed);
      const uint8_t* const scales = signs ? signs + layout::sign_bytes(m.rows, p.n_groups) : nullptr;
      p.matrix[i] = {signs, scales, args.bias[i], args.out[i], args.out_stride[i], static_cast<uint32_t>(m.rows), p.n_tiles};
      p.n_tiles += static_cast<uint32_t>(layout::tiles_of(m.rows));
    }
    p.n_rows = args.n_rows;
    p.x = args.x;
    p.x_stride = args.x_stride;
    p.norm = args.norm;
    p.eps = args.eps;
    p.residual = args.residual;
    p.residual_stride = args.residual_stride;
    p.n_matrices = args.n_matrices;
    p.max_rows = args.max_rows;
    p.fuse = args.fuse;
    p.n_units = args.fuse >= TURBO_FUSE_SILU ? p.n_tiles / 2 : p.n_tiles;
    plan.plane_bytes = uint64_t{args.max_rows} * p.n_groups * layout::kGroupBytes;
    const turbo_device* const device = kernels_.device();
    if (!device) throw Failure(TURBO_INTERNAL, "q1_0: a product before attach");
    plan.choice = choose(args.max_rows, p.n_groups, p.n_tiles, p.n_units, device->compute_units ? device->compute_units : 1, device->max_shared_bytes,
                         wide_);
    if (!int8_) plan.choice.prepared = false;
    return plan;
  }

  DeviceKernels kernels_;
  bool int8_, wide_ = false;
};

static_assert(uint32_t{gpu::q1::fuse_add} == TURBO_FUSE_ADD && uint32_t{gpu::q1::fuse_silu} == TURBO_FUSE_SILU &&
              uint32_t{gpu::q1::fuse_gelu} == TURBO_FUSE_GELU && layout::kMatrices == TURBO_FUSED_MATRICES);

}  // namespace
}  // namespace turbo::q1

TURBO_PLUGIN("dev.turbo.quant_q1g128", "Q1_0 weights", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::q1::Q1Format>(TURBO_KIND_WEIGHT_FORMAT, "q1_0", TURBO_TIER_HIP, turbo::q1::kOptions))
