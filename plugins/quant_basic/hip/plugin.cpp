// Component weight_format/basic on the hip tier: the host half. Packs, checks and fills argument structs; the pack launches.
// Immutable between attach and detach, so [load] and [engine] calls need no lock.
#include <turbo/device_client.hpp>
#include <turbo/kernel/half.h>
#include <turbo/weight_format.hpp>

#include "../src/types.h"
#include "args.h"

extern "C" {
extern const turbo_code_object turbo_kernels_basic[];
extern const uint32_t turbo_n_kernels_basic;
}

namespace turbo::basic {
namespace {

constexpr uint64_t kMost = uint64_t{1} << 31;  // rows and columns are 32-bit numbers in kernels

// Kernels in the order they are attached in: per type of kTypes products of 1, 2, 4, 8 rows.
enum Kernel : uint32_t { products, exact_q8 = 20, exact_q4, norm, bytes, gathers };
const std::vector<std::string> kKernels = {
    "basic_f32_1",  "basic_f32_2",  "basic_f32_4",    "basic_f32_8",    "basic_f16_1", "basic_f16_2", "basic_f16_4",      "basic_f16_8",
    "basic_bf16_1", "basic_bf16_2", "basic_bf16_4",   "basic_bf16_8",   "basic_q8_1",  "basic_q8_2",  "basic_q8_4",       "basic_q8_8",
    "basic_q4_1",   "basic_q4_2",   "basic_q4_4",     "basic_q4_8",     "basic_q8_exact", "basic_q4_exact", "basic_norm", "basic_bytes",
    "basic_gather_f32", "basic_gather_f16", "basic_gather_bf16", "basic_gather_q8", "basic_gather_q4"};

constexpr bool is_grouped(uint32_t type) { return type == TURBO_TYPE_Q8_0 || type == TURBO_TYPE_Q4_0; }
constexpr uint64_t round_up(uint64_t n, uint64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

// Of a checked shape. At most 2^31 x 2^31 x 4 bytes: 64 bits hold it.
struct Layout {
  uint64_t source_row;    // bytes of a row in the file
  uint64_t row;           // bytes of its codes (or floats) on the device
  uint64_t scale_offset;  // from the start of the packed form
  uint64_t total;
};

Layout layout_of(uint32_t type, uint64_t rows, uint64_t cols) {
  const turbo_type_info& info = checked_type(type, rows, cols);
  const std::string shape = shape_text(rows, cols);
  if (rows > kMost || cols > kMost) throw Failure(TURBO_INVALID_ARGUMENT, "basic: a matrix of " + shape + " is beyond 2^31 rows or columns");
  Layout layout{};
  layout.source_row = cols / info.block_weights * info.block_bytes;
  layout.row = is_grouped(type) ? cols / kGroup * (info.block_bytes - 2) : round_up(layout.source_row, 16);
  if (__builtin_mul_overflow(rows, layout.row, &layout.scale_offset) || layout.scale_offset > kMost << 30)
    throw Failure(TURBO_INVALID_ARGUMENT, "basic: a matrix of " + shape + " is too large for a device");
  layout.scale_offset = round_up(layout.scale_offset, 256);
  layout.total = layout.scale_offset + (is_grouped(type) ? rows * (cols / kGroup) * 2 : 0);
  return layout;
}

class BasicFormat final : public WeightFormat<BasicFormat> {
 public:
  explicit BasicFormat(const Host& host) : int8_(activations_of(host) == "int8") {}

  static const void* interface(std::string_view id) {
    const void* table = weight_format_device_interface<BasicFormat>(id);
    return table ? table : WeightFormat<BasicFormat>::interface(id);
  }

  std::span<const turbo_type_info> types() const override { return kTypes; }

  PackedSize packed_size(uint32_t type, uint64_t rows, uint64_t cols) const override { return {layout_of(type, rows, cols).total, 256, 1}; }

  void repack(uint32_t type, uint64_t rows, uint64_t cols, std::span<const std::byte> source, void* packed, uint64_t row_begin,
              uint64_t row_end) const override {
    const Layout layout = layout_of(type, rows, cols);
    check_repack(rows * layout.source_row, source.size(), rows, row_begin, row_end, 1);
    const auto* const in = reinterpret_cast<const uint8_t*>(source.data());
    auto* const out = static_cast<uint8_t*>(packed);
    const uint64_t n_groups = cols / kGroup;
    for (uint64_t row = row_begin; row < row_end; ++row) {
      const uint8_t* const from = in + row * layout.source_row;
      uint8_t* const to = out + row * layout.row;
      if (!is_grouped(type)) {
        std::memcpy(to, from, layout.source_row);
        std::memset(to + layout.source_row, 0, layout.row - layout.source_row);
        continue;
      }
      const uint64_t code_bytes = layout.row / n_groups;
      for (uint64_t g = 0; g < n_groups; ++g) {
        const uint8_t* const block = from + g * (code_bytes + 2);
        std::memcpy(out + layout.scale_offset + (row * n_groups + g) * 2, block, 2);
        std::memcpy(to + g * code_bytes, block + 2, code_bytes);
      }
    }
    // The gap before the scales belongs to no row.
    if (row_end == rows && rows * layout.row < layout.scale_offset)
      std::memset(out + rows * layout.row, 0, layout.scale_offset - rows * layout.row);
  }

  void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst) const noexcept override {
    guarded(nullptr, [&] {
      const Layout layout = layout_of(matrix.type, matrix.rows, matrix.cols);
      const auto* const packed = static_cast<const uint8_t*>(matrix.packed);
      for (uint64_t row = row_begin; row < row_end; ++row, dst += matrix.cols) {
        const uint8_t* const from = packed + row * layout.row;
        if (is_grouped(matrix.type)) decode_groups(matrix, layout, row, dst);
        else if (matrix.type == TURBO_TYPE_F32) std::memcpy(dst, from, matrix.cols * 4);
        else
          for (uint64_t i = 0; i < matrix.cols; ++i) {
            uint16_t half;
            std::memcpy(&half, from + 2 * i, 2);
            dst[i] = matrix.type == TURBO_TYPE_F16 ? turbo_f16_to_f32(half) : turbo_bf16_to_f32(half);
          }
      }
    });
  }

  // A host copy is decoded only; products are the device's.
  void matmul(const turbo_matmul&) const noexcept override {}

  void attach(const turbo_device* device) { kernels_.attach(device, {{turbo_kernels_basic, turbo_n_kernels_basic, kKernels}}); }
  void detach() noexcept { kernels_.detach(); }

  void check(const turbo_device_matmul& args) const {
    check_device_matmul(args, "basic", [](const turbo_matrix& m) { layout_of(m.type, m.rows, m.cols); });
    if (args.n_matrices != 1 || args.fuse > TURBO_FUSE_ADD)
      throw Failure(TURBO_UNSUPPORTED, "basic: products of one matrix, with norm, bias and residual, are served");
    if (args.x_rows || args.x_q8.rows || args.out_q8.rows)
      throw Failure(TURBO_UNSUPPORTED, "basic: rows of a product are floats, all of them");
  }

  uint64_t workspace_bytes(const turbo_device_matmul& args) const {
    check(args);
    const Workspace w = workspace_of(args);
    return w.bytes ? w.scale_offset + uint64_t{args.max_rows} * (args.cols / kGroup) * 4 : w.row * args.max_rows;
  }

  void matmul(turbo_stream* stream, const turbo_device_matmul& args) const {
    const turbo_matrix& m = *args.matrices[0];
    const Layout layout = layout_of(m.type, m.rows, m.cols);
    const Workspace workspace = workspace_of(args);
    Product p{};
    p.codes = static_cast<const uint8_t*>(m.packed);
    p.scales = p.codes + layout.scale_offset;
    p.bias = args.bias[0];
    p.out = args.out[0];
    p.residual = args.fuse == TURBO_FUSE_ADD ? args.residual : nullptr;
    p.n_rows = args.n_rows;
    p.x = args.x;
    p.x_stride = args.x_stride;
    p.out_stride = args.out_stride[0];
    p.residual_stride = args.residual_stride;
    p.row_bytes = layout.row;
    p.norm = args.norm;
    p.rows = static_cast<uint32_t>(m.rows);
    p.cols = static_cast<uint32_t>(m.cols);
    p.max_rows = args.max_rows;
    p.eps = args.eps;
    if (workspace.row) {
      p.prepared = static_cast<uint8_t*>(args.workspace);
      p.prepared_stride = workspace.row;
      if (workspace.bytes) p.prepared_scales = reinterpret_cast<float*>(p.prepared + workspace.scale_offset);
      kernels_.launch(stream, workspace.bytes ? bytes : norm, p.max_rows, 1, kPrepareThreads, 0, p);
    }
    const uint32_t blocks = static_cast<uint32_t>((m.rows + kBlockOutputs - 1) / kBlockOutputs);
    if (is_grouped(m.type) && !int8_) {
      kernels_.launch(stream, m.type == TURBO_TYPE_Q8_0 ? exact_q8 : exact_q4, blocks, p.max_rows, kThreads, 0, p);
      return;
    }
    const uint32_t power = p.max_rows > 4 ? 3 : p.max_rows > 2 ? 2 : p.max_rows - 1;  // 1, 2, 4, 8 rows at once
    const uint32_t bands = (p.max_rows + (1u << power) - 1) >> power;
    kernels_.launch(stream, products + index_of(m.type) * 4 + power, blocks, bands, kThreads, 0, p);
  }

  void check(const turbo_device_gather& args) const {
    if (args.out_q8.rows) throw Failure(TURBO_UNSUPPORTED, "basic: rows are given as floats");
  }

  void gather(turbo_stream* stream, const turbo_device_gather& args) const {
    const turbo_matrix& m = *args.matrix;
    const Layout layout = layout_of(m.type, m.rows, m.cols);
    const auto* const codes = static_cast<const uint8_t*>(m.packed);
    const Gather rows = {codes,      codes + layout.scale_offset,    args.ids, args.n_rows, args.dst, args.dst_stride, layout.row, static_cast<uint32_t>(m.rows),
                         static_cast<uint32_t>(m.cols)};
    kernels_.launch(stream, gathers + index_of(m.type), args.max_rows, 1, kThreads, 0, rows);
  }

 private:
  // A prepared row: none, floats behind a norm, or bytes with scales behind all rows.
  struct Workspace {
    uint64_t row, scale_offset;
    bool bytes;
  };
  Workspace workspace_of(const turbo_device_matmul& args) const {
    const bool as_bytes = int8_ && is_grouped(args.matrices[0]->type);
    const uint64_t row = as_bytes ? args.cols : args.norm ? round_up(args.cols * 4, 16) : 0;
    return {row, round_up(row * args.max_rows, 256), as_bytes};
  }

  static void decode_groups(const turbo_matrix& matrix, const Layout& layout, uint64_t row, float* dst) {
    const auto* const packed = static_cast<const uint8_t*>(matrix.packed);
    const uint64_t n_groups = matrix.cols / kGroup, code_bytes = layout.row / n_groups;
    for (uint64_t g = 0; g < n_groups; ++g) {
      const uint8_t* const code = packed + row * layout.row + g * code_bytes;
      uint16_t half;
      std::memcpy(&half, packed + layout.scale_offset + (row * n_groups + g) * 2, 2);
      const float scale = turbo_f16_to_f32(half);
      for (uint32_t i = 0; i < kGroup; ++i) {
        const int value = matrix.type == TURBO_TYPE_Q8_0 ? static_cast<int8_t>(code[i]) : (i < 16 ? code[i] & 15 : code[i - 16] >> 4) - 8;
        *dst++ = static_cast<float>(value) * scale;
      }
    }
  }

  DeviceKernels kernels_;
  bool int8_;
};

}  // namespace
}  // namespace turbo::basic

TURBO_PLUGIN("dev.turbo.quant_basic", "Plain and 4/8-bit weights", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::basic::BasicFormat>(TURBO_KIND_WEIGHT_FORMAT, "basic", TURBO_TIER_HIP, turbo::basic::kOptions))
