// Toy q8: closed blocks hold one int8 code per element and one f32 scale per vector; open blocks hold f16.
//
// Block layout, both forms: heads one after another, 64 rows each.
//   open    row = head_dim f16
//   packed  64 f32 scales of the head, then 64 rows of head_dim int8
// Attention reads either form in place. A score runs in the 16 lanes of turbo/kernel/lanes.h; the scale of a packed
// key is applied to the finished sum, so a row's bits depend on the key alone.
#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>
#include <turbo/kv_codec.hpp>

#include <cmath>

namespace {

constexpr uint32_t kRows = TURBO_KV_BLOCK;
constexpr uint64_t kMaxBlockBytes = uint64_t{1} << 40;

// Where things lie in one head of a block.
struct OpenHead {
  uint16_t* rows;
  OpenHead(const turbo_kv_shape& s, const void* block, uint32_t head)
      : rows(static_cast<uint16_t*>(const_cast<void*>(block)) + uint64_t{head} * kRows * s.head_dim) {}
};
struct PackedHead {
  float* scales;
  int8_t* codes;
  PackedHead(const turbo_kv_shape& s, const void* block, uint32_t head) {
    char* base = static_cast<char*>(const_cast<void*>(block)) + head * bytes(s);
    scales = reinterpret_cast<float*>(base);
    codes = reinterpret_cast<int8_t*>(base + kRows * sizeof(float));
  }
  static uint64_t bytes(const turbo_kv_shape& s) { return kRows * (sizeof(float) + uint64_t{s.head_dim}); }
};

class ToyQ8 : public turbo::KvCodec<ToyQ8> {
 public:
  explicit ToyQ8(const turbo::Host&) {}

  void layout(const turbo_kv_shape& shape, turbo_kv_layout& out) const override {
    if (shape.head_dim % 4 != 0 || shape.head_dim > (1u << 20) || shape.n_kv_heads > (1u << 16))
      throw turbo::Failure(TURBO_UNSUPPORTED, "toy_q8: head size " + std::to_string(shape.head_dim) + " is no multiple of 4");
    out.packed_block_bytes = shape.n_kv_heads * PackedHead::bytes(shape);
    out.open_block_bytes = uint64_t{shape.n_kv_heads} * kRows * shape.head_dim * sizeof(uint16_t);
    if (out.open_block_bytes > kMaxBlockBytes) throw turbo::Failure(TURBO_RESOURCE_EXHAUSTED, "toy_q8: block too large");
    out.alignment = 64;
    out.query_floats = shape.head_dim;
    out.truncate_granularity = 1;
    out.bits_per_element = 8.0f + 32.0f / static_cast<float>(shape.head_dim);
    // Codes are off by half a step at most, a step is max/127; f16 adds 2^-11.
    out.error_bound = std::sqrt(static_cast<float>(shape.head_dim)) / 254.0f + 0x1p-11f;
  }

  turbo_status append(const turbo_kv_shape& shape, void* block, uint32_t row, const float* src, uint32_t head_begin,
                      uint32_t head_end) const noexcept override {
    for (uint32_t head = head_begin; head < head_end; ++head) {
      uint16_t* dst = OpenHead(shape, block, head).rows + uint64_t{row} * shape.head_dim;
      for (uint32_t e = 0; e < shape.head_dim; ++e) {
        dst[e] = turbo_f32_to_f16(src[uint64_t{head} * shape.head_dim + e]);
        if ((dst[e] & 0x7c00u) == 0x7c00u) return TURBO_CORRUPT_INPUT;  // NaN, or too large for f16
      }
    }
    return TURBO_OK;
  }

  turbo_status pack(const turbo_kv_shape& shape, const void* open_block, void* packed_block) const noexcept override {
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head) {
      const OpenHead open(shape, open_block, head);
      const PackedHead packed(shape, packed_block, head);
      for (uint32_t row = 0; row < kRows; ++row) {
        const uint16_t* src = open.rows + uint64_t{row} * shape.head_dim;
        int8_t* codes = packed.codes + uint64_t{row} * shape.head_dim;
        float largest = 0;
        for (uint32_t e = 0; e < shape.head_dim; ++e) largest = std::fmax(largest, std::fabs(turbo_f16_to_f32(src[e])));
        packed.scales[row] = largest / 127.0f;
        for (uint32_t e = 0; e < shape.head_dim; ++e)
          codes[e] = largest > 0 ? static_cast<int8_t>(std::nearbyint(turbo_f16_to_f32(src[e]) * (127.0f / largest))) : int8_t{0};
      }
    }
    return TURBO_OK;
  }

  void qk_scores(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* queries, uint64_t query_stride, float* scores,
                 uint64_t score_stride) const noexcept override {
    for (uint32_t i = 0; i < run.n_rows; ++i) {
      const Row key(shape, run, i);
      for (uint32_t q = 0; q < run.n_queries; ++q) {
        const float* query = queries + q * query_stride;
        float lane[TURBO_LANES] = {0};
        for (uint32_t e = 0; e < shape.head_dim; ++e) lane[e % TURBO_LANES] = fmaf(query[e], key.code(e), lane[e % TURBO_LANES]);
        scores[q * score_stride + i] = turbo_lane_sum(lane) * key.scale;
      }
    }
  }

  void pv_accumulate(const turbo_kv_shape& shape, const turbo_kv_run& run, const float* weights, uint64_t weight_stride, float* out,
                     uint64_t out_stride) const noexcept override {
    for (uint32_t i = 0; i < run.n_rows; ++i) {
      const Row value(shape, run, i);
      for (uint32_t q = 0; q < run.n_queries; ++q) {
        const float weight = weights[q * weight_stride + i] * value.scale;
        float* row = out + q * out_stride;
        for (uint32_t e = 0; e < shape.head_dim; ++e) row[e] = fmaf(weight, value.code(e), row[e]);
      }
    }
  }

  void move_row(const turbo_kv_shape& shape, const void* src_block, uint32_t src_row, void* dst_block, uint32_t dst_row) const noexcept override {
    for (uint32_t head = 0; head < shape.n_kv_heads; ++head)
      std::memmove(OpenHead(shape, dst_block, head).rows + uint64_t{dst_row} * shape.head_dim,
                   OpenHead(shape, src_block, head).rows + uint64_t{src_row} * shape.head_dim, shape.head_dim * sizeof(uint16_t));
  }

  void decode_row(const turbo_kv_shape& shape, uint32_t form, const void* block, uint32_t row, float* dst) const noexcept override {
    turbo_kv_run run = {sizeof(turbo_kv_run), form, block, row, 1, 0, 1, nullptr};
    for (; run.kv_head < shape.n_kv_heads; ++run.kv_head) {
      const Row value(shape, run, 0);
      for (uint32_t e = 0; e < shape.head_dim; ++e) *dst++ = value.code(e) * value.scale;
    }
  }

  uint64_t fingerprint() const noexcept override { return 0x746f795f71380001ull; }  // name and layout version

 private:
  // One stored vector of a run, whatever its form.
  struct Row {
    const uint16_t* halves = nullptr;
    const int8_t* codes = nullptr;
    float scale = 1;
    Row(const turbo_kv_shape& shape, const turbo_kv_run& run, uint32_t i) {
      const uint64_t row = run.row_begin + i;
      if (run.form == TURBO_KV_FORM_OPEN) {
        halves = OpenHead(shape, run.block, run.kv_head).rows + row * shape.head_dim;
      } else {
        const PackedHead head(shape, run.block, run.kv_head);
        codes = head.codes + row * shape.head_dim;
        scale = head.scales[row];
      }
    }
    float code(uint32_t e) const { return halves ? turbo_f16_to_f32(halves[e]) : static_cast<float>(codes[e]); }
  };
};

}  // namespace

TURBO_PLUGIN("org.example.my_kv_codec", "Toy q8 KV codec", "0.1.0", "Example", "Apache-2.0",
             turbo::component<ToyQ8>(TURBO_KIND_KV_CODEC, "toy_q8", TURBO_TIER_CPU))
