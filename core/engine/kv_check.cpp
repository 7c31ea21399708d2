#include "engine/kv_check.h"

#include <turbo/kernel/half.h>
#include <turbo/kernel/lanes.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "base/abi_error.h"

namespace turbo::engine {
namespace {

constexpr uint32_t kQueryStep = 4;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<uint8_t, Free>;

Block make_block(uint64_t bytes, uint32_t alignment) {
  const uint64_t unit = std::max<uint64_t>(64, alignment);
  return Block(static_cast<uint8_t*>(std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit)));
}

// The keys of one layer as the codec packs them.
class PackedKeys {
 public:
  PackedKeys(const loader::Component<turbo_kv_codec>& codec, const KvObservation& seen, uint32_t layer)
      : codec_(codec), shape_{sizeof(turbo_kv_shape), TURBO_KV_SIDE_K, layer, seen.n_layers, seen.n_kv_heads, seen.head_dim} {}

  Status pack(const KvObservation& seen, uint32_t layer) {
    AbiError failure;
    layout_.struct_size = sizeof layout_;
    TURBO_RETURN_IF_ERROR(failure.check(codec_.table->layout(codec_.self, &shape_, &layout_, failure.out()), "KV codec"));
    const bool one_form = layout_.flags & TURBO_KV_OPEN_IS_PACKED;
    const Block open = one_form ? nullptr : make_block(layout_.open_block_bytes, layout_.alignment);
    for (uint32_t first = 0; first < seen.n_tokens; first += TURBO_KV_BLOCK) {
      Block packed = make_block(layout_.packed_block_bytes, layout_.alignment);
      if (!packed || (!one_form && !open)) return Status(Code::resource_exhausted, "checking KV codecs: out of memory");
      const uint32_t n = std::min(TURBO_KV_BLOCK, seen.n_tokens - first);
      for (uint32_t i = 0; i < TURBO_KV_BLOCK; ++i) {  // a block is packed whole: its end repeats the last row
        const turbo_status status = codec_.table->append(codec_.self, &shape_, one_form ? packed.get() : open.get(), i,
                                                         seen.key(layer, first + std::min(i, n - 1), 0), 0, seen.n_kv_heads);
        if (status != TURBO_OK) return error(Code::corrupt_input, "layer {}: the KV codec refused a key (NaN or out of range)", layer);
      }
      if (!one_form && codec_.table->pack(codec_.self, &shape_, open.get(), packed.get()) != TURBO_OK)
        return error(Code::corrupt_input, "layer {}: the KV codec could not pack its keys", layer);
      blocks_.push_back(std::move(packed));
    }
    prepared_.resize((uint64_t{layout_.query_floats} + 15) / 16 * 16 + 16);
    return Status::ok();
  }

  // scores[i] of keys 0..n-1, unscaled.
  void scores(const float* query, uint32_t kv_head, uint32_t n, float* scores) {
    float* prepared = prepared_.data();
    while (reinterpret_cast<uintptr_t>(prepared) % 64) ++prepared;
    codec_.table->prepare_query(codec_.self, &shape_, TURBO_KV_FORM_PACKED, query, prepared);
    for (uint32_t first = 0; first < n; first += TURBO_KV_BLOCK) {
      turbo_kv_run run{};
      run.struct_size = sizeof run;
      run.form = TURBO_KV_FORM_PACKED;
      run.block = blocks_[first / TURBO_KV_BLOCK].get();
      run.n_rows = std::min(TURBO_KV_BLOCK, n - first);
      run.kv_head = kv_head;
      run.n_queries = 1;
      codec_.table->qk_scores(codec_.self, &shape_, &run, prepared, layout_.query_floats, scores + first, TURBO_KV_BLOCK);
    }
  }

 private:
  const loader::Component<turbo_kv_codec> codec_;
  const turbo_kv_shape shape_;
  turbo_kv_layout layout_{};
  std::vector<Block> blocks_;
  std::vector<float> prepared_;
};

// KL(p || q) of softmax(scale * exact) and softmax(scale * packed).
double divergence(const std::vector<float>& exact, const std::vector<float>& packed, uint32_t n, double scale) {
  const auto log_sum = [&](const std::vector<float>& scores) {
    double most = scores[0], sum = 0;
    for (uint32_t i = 0; i < n; ++i) most = std::max(most, static_cast<double>(scores[i]));
    for (uint32_t i = 0; i < n; ++i) sum += std::exp(scale * (scores[i] - most));
    return scale * most + std::log(sum);
  };
  const double zp = log_sum(exact), zq = log_sum(packed);
  double kl = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const double p = scale * exact[i] - zp, q = scale * packed[i] - zq;
    kl += std::exp(p) * (p - q);
  }
  return std::max(0.0, kl);
}

}  // namespace

std::vector<std::vector<float>> key_centers(const KvObservation& seen) {
  std::vector<std::vector<float>> centers;
  const uint64_t width = uint64_t{seen.n_kv_heads} * seen.head_dim;
  for (uint32_t layer = 0; layer < seen.n_layers; ++layer) {
    std::vector<double> sum(width);
    for (uint32_t token = 0; token < seen.n_tokens; ++token)
      for (uint64_t e = 0; e < width; ++e) sum[e] += seen.keys[layer][token * width + e];
    std::vector<float>& center = centers.emplace_back(width);
    for (uint64_t e = 0; e < width; ++e) {
      const float mean = static_cast<float>(sum[e] / seen.n_tokens);
      center[e] = std::isfinite(mean) ? turbo_f16_to_f32(turbo_f32_to_f16(std::clamp(mean, -65504.0f, 65504.0f))) : 0.0f;
    }
  }
  return centers;
}

Result<double> attention_divergence(const loader::Component<turbo_kv_codec>& codec, const KvObservation& seen, uint32_t layer) {
  PackedKeys packed(codec, seen, layer);
  TURBO_RETURN_IF_ERROR(packed.pack(seen, layer));
  const uint32_t gqa = seen.n_heads / seen.n_kv_heads;
  const double scale = 1.0 / std::sqrt(static_cast<double>(seen.head_dim));
  std::vector<float> exact(seen.n_tokens), approximate(seen.n_tokens);
  double sum = 0;
  uint64_t n_queries = 0;
  for (uint32_t token = kQueryStep - 1; token < seen.n_tokens; token += kQueryStep)
    for (uint32_t head = 0; head < seen.n_heads; ++head, ++n_queries) {
      const float* query = seen.query(layer, token, head);
      for (uint32_t i = 0; i <= token; ++i) exact[i] = turbo_dot_f32(query, seen.key(layer, i, head / gqa), seen.head_dim);
      packed.scores(query, head / gqa, token + 1, approximate.data());
      sum += divergence(exact, approximate, token + 1, scale);
    }
  if (!std::isfinite(sum)) return error(Code::corrupt_input, "layer {}: attention gave no numbers on the check's text", layer);
  return sum / static_cast<double>(std::max<uint64_t>(1, n_queries));
}

}  // namespace turbo::engine
