// Q8_0 weights: blocks of 32 int8 codes behind one f16 scale. Packed form: codes and scales apart, so that a kernel
// reads each as one stream. Per matrix row: cols int8 codes, then cols / 32 f32 scales.
#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>
#include <turbo/weight_format.hpp>

namespace {

constexpr uint64_t kBlock = 32, kSourceBlockBytes = 34;
constexpr turbo_type_info kTypes[] = {{sizeof(turbo_type_info), TURBO_TYPE_Q8_0, "q8_0", kBlock, kSourceBlockBytes}};

struct PackedRow {
  const int8_t* codes;
  const float* scales;
  float weight(uint64_t col) const { return static_cast<float>(codes[col]) * scales[col / kBlock]; }
};
constexpr uint64_t packed_row_bytes(uint64_t cols) { return cols + cols / kBlock * sizeof(float); }
PackedRow packed_row(const turbo_matrix& matrix, uint64_t row) {
  const char* base = static_cast<const char*>(matrix.packed) + row * packed_row_bytes(matrix.cols);
  return {reinterpret_cast<const int8_t*>(base), reinterpret_cast<const float*>(base + matrix.cols)};
}

class MyQ8 : public turbo::WeightFormat<MyQ8> {
 public:
  explicit MyQ8(const turbo::Host&) {}

  std::span<const turbo_type_info> types() const override { return kTypes; }

  turbo::PackedSize packed_size(uint32_t type, uint64_t rows, uint64_t cols) const override {
    if (type != TURBO_TYPE_Q8_0) throw turbo::Failure(TURBO_UNSUPPORTED, "weight type " + std::to_string(type) + ": only q8_0 is served");
    if (rows == 0 || cols == 0 || cols % kBlock != 0)
      throw turbo::Failure(TURBO_CORRUPT_INPUT, "q8_0 matrix: " + std::to_string(cols) + " columns are no whole number of blocks of 32");
    uint64_t bytes = 0;
    if (cols > (uint64_t{1} << 40) || __builtin_mul_overflow(rows, packed_row_bytes(cols), &bytes))
      throw turbo::Failure(TURBO_CORRUPT_INPUT, "q8_0 matrix: size overflows");
    return {bytes, 64, 1};
  }

  void repack(uint32_t type, uint64_t rows, uint64_t cols, std::span<const std::byte> source, void* packed, uint64_t row_begin,
              uint64_t row_end) const override {
    packed_size(type, rows, cols);
    const uint64_t blocks = cols / kBlock;
    if (source.size() / kSourceBlockBytes / blocks < rows)
      throw turbo::Failure(TURBO_CORRUPT_INPUT, "q8_0 matrix: the file ends before its last row");
    for (uint64_t row = row_begin; row < row_end; ++row) {
      char* out = static_cast<char*>(packed) + row * packed_row_bytes(cols);
      for (uint64_t block = 0; block < blocks; ++block) {
        const std::byte* in = source.data() + (row * blocks + block) * kSourceBlockBytes;
        uint16_t half;
        std::memcpy(&half, in, sizeof half);
        const float scale = turbo_f16_to_f32(half);
        std::memcpy(out + cols + block * sizeof scale, &scale, sizeof scale);
        std::memcpy(out + block * kBlock, in + sizeof half, kBlock);
      }
    }
  }

  void decode_rows(const turbo_matrix& matrix, uint64_t row_begin, uint64_t row_end, float* dst) const noexcept override {
    for (uint64_t row = row_begin; row < row_end; ++row) {
      const PackedRow weights = packed_row(matrix, row);
      for (uint64_t col = 0; col < matrix.cols; ++col) *dst++ = weights.weight(col);
    }
  }

  // Input j goes to lane j mod 16 by fused multiply-add; the lanes are summed by the fixed tree. A vector version
  // must give the same bits.
  void matmul(const turbo_matmul& args) const noexcept override {
    for (uint64_t o = args.out_begin; o < args.out_end; ++o) {
      const PackedRow weights = packed_row(*args.matrix, o);
      for (uint32_t r = 0; r < args.n_rows; ++r) {
        const auto* x = reinterpret_cast<const float*>(static_cast<const char*>(args.activations) + r * args.activation_stride);
        float lane[TURBO_LANES] = {0};
        for (uint64_t j = 0; j < args.matrix->cols; ++j) lane[j % TURBO_LANES] = fmaf(x[j], weights.weight(j), lane[j % TURBO_LANES]);
        args.out[r * args.out_stride + o] = turbo_lane_sum(lane);
      }
    }
  }
};

}  // namespace

TURBO_PLUGIN("org.example.my_weight_format", "Q8_0 weights", "0.1.0", "Example", "Apache-2.0",
             turbo::component<MyQ8>(TURBO_KIND_WEIGHT_FORMAT, "my_q8_0", TURBO_TIER_CPU))
