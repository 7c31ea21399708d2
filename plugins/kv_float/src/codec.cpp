#include "codec.h"

#include <turbo/kernel/cpu_isa.hpp>
#include <turbo/kernel/half.h>

#include <cstring>

namespace turbo::kv_float {
namespace {

constexpr uint32_t kMaxHeadDim = 512, kMaxHeads = 4096;

const Kernels& kernels_for(CpuIsa isa, Element element) {
  return isa == CpuIsa::avx512 ? avx512_kernels(element) : isa == CpuIsa::avx2 ? avx2_kernels(element) : scalar_kernels(element);
}

uint32_t padded_dim(const turbo_kv_shape& shape) { return (shape.head_dim + 15) / 16 * 16; }

const Codec& codec(const void* self) { return *static_cast<const Codec*>(self); }

turbo_status layout(void* self, const turbo_kv_shape* shape, turbo_kv_layout* layout, turbo_error* error) {
  return guarded(error, [&] { codec(self).layout(*shape, *layout); });
}

turbo_status append(void* self, const turbo_kv_shape* shape, void* block, uint32_t row, const float* src, uint32_t head_begin,
                    uint32_t head_end) {
  const Codec& c = codec(self);
  const uint64_t pitch = c.pitch(*shape), head_bytes = c.head_bytes(*shape);
  for (uint32_t head = head_begin; head < head_end; ++head) {
    uint8_t* dst = static_cast<uint8_t*>(block) + head * head_bytes + row * pitch;
    if (!c.kernels().encode(src + static_cast<uint64_t>(head) * shape->head_dim, shape->head_dim, dst)) return TURBO_CORRUPT_INPUT;
  }
  return TURBO_OK;
}

void prepare_query(void*, const turbo_kv_shape* shape, uint32_t, const float* query, float* prepared) {
  std::memcpy(prepared, query, shape->head_dim * sizeof(float));
  std::memset(prepared + shape->head_dim, 0, (padded_dim(*shape) - shape->head_dim) * sizeof(float));
}

KeyRun key_run(const Codec& c, const turbo_kv_shape& shape, const turbo_kv_run& run) {
  const uint64_t pitch = c.pitch(shape);
  const uint64_t first = run.kv_head * c.head_bytes(shape) + run.row_begin * pitch;
  const uint8_t *rows = static_cast<const uint8_t*>(run.block) + first, *ahead = static_cast<const uint8_t*>(run.ahead);
  return {rows, pitch, run.n_rows, shape.head_dim, run.n_queries, ahead ? ahead + first : nullptr};
}

void qk_scores(void* self, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* queries, uint64_t query_stride,
               float* scores, uint64_t score_stride) {
  codec(self).kernels().scores(key_run(codec(self), *shape, *run), queries, query_stride, scores, score_stride);
}

void pv_accumulate(void* self, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* weights, uint64_t weight_stride,
                   float* out, uint64_t out_stride) {
  codec(self).kernels().accumulate(key_run(codec(self), *shape, *run), weights, weight_stride, out, out_stride);
}

void finish_output(void*, const turbo_kv_shape* shape, uint32_t, const float* accumulated, float* output) {
  std::memmove(output, accumulated, shape->head_dim * sizeof(float));
}

void move_row(void* self, const turbo_kv_shape* shape, const void* src_block, uint32_t src_row, void* dst_block, uint32_t dst_row) {
  const Codec& c = codec(self);
  const uint64_t pitch = c.pitch(*shape), head_bytes = c.head_bytes(*shape), bytes = uint64_t{shape->head_dim} * c.element_bytes();
  for (uint32_t head = 0; head < shape->n_kv_heads; ++head)
    std::memmove(static_cast<uint8_t*>(dst_block) + head * head_bytes + dst_row * pitch,
                 static_cast<const uint8_t*>(src_block) + head * head_bytes + src_row * pitch, bytes);
}

void decode_row(void* self, const turbo_kv_shape* shape, uint32_t, const void* block, uint32_t row, float* dst) {
  const Codec& c = codec(self);
  for (uint32_t head = 0; head < shape->n_kv_heads; ++head) {
    const uint8_t* src = static_cast<const uint8_t*>(block) + head * c.head_bytes(*shape) + row * c.pitch(*shape);
    for (uint32_t e = 0; e < shape->head_dim; ++e, ++dst) {
      uint16_t half;
      if (c.element() == Element::f32) {
        std::memcpy(dst, src + e * 4, 4);
        continue;
      }
      std::memcpy(&half, src + e * 2, 2);
      *dst = c.element() == Element::f16 ? turbo_f16_to_f32(half) : turbo_bf16_to_f32(half);
    }
  }
}

uint64_t fingerprint(void* self) {
  // "kvfloat", the layout revision and the element: all that decides stored bits.
  return 0x6b76666c6f617400ull ^ (1ull << 4) ^ static_cast<uint64_t>(codec(self).element());
}

const turbo_kv_codec kTable = {sizeof(turbo_kv_codec), 0,         &layout,        &append,   nullptr,     &prepare_query,
                               &qk_scores,             &pv_accumulate, &finish_output, &move_row, &decode_row, &fingerprint};

}  // namespace

Codec::Codec(const Host&, Element element) : element_(element) {
  const CpuIsaChoice choice = choose_cpu_isa();
  if (!choice.problem.empty()) throw Failure(TURBO_UNSUPPORTED, choice.problem, "unset TURBO_CPU_ISA");
  kernels_ = &kernels_for(choice.isa, element);
}

void Codec::probe(const Host&, const turbo_probe_facts&, Probe& answer) {
  const CpuIsaChoice choice = choose_cpu_isa();
  answer.score = choice.problem.empty() ? 100 : 0;
  answer.reason = choice.problem.empty() ? cpu_isa_name(choice.isa) : choice.problem;
}

const void* Codec::interface(std::string_view id) { return id == TURBO_KV_CODEC_DRAFT ? &kTable : nullptr; }

uint64_t Codec::pitch(const turbo_kv_shape& shape) const { return (uint64_t{shape.head_dim} * element_bytes() + 63) / 64 * 64; }

void Codec::layout(const turbo_kv_shape& shape, turbo_kv_layout& layout) const {
  if (shape.head_dim == 0 || shape.head_dim > kMaxHeadDim)
    throw Failure(TURBO_UNSUPPORTED, "float KV codec: head size " + std::to_string(shape.head_dim) + " is not in 1.." +
                                         std::to_string(kMaxHeadDim));
  if (shape.n_kv_heads == 0 || shape.n_kv_heads > kMaxHeads)
    throw Failure(TURBO_UNSUPPORTED, "float KV codec: " + std::to_string(shape.n_kv_heads) + " KV heads are not in 1.." +
                                         std::to_string(kMaxHeads));
  layout = {};
  layout.struct_size = sizeof(turbo_kv_layout);
  layout.flags = TURBO_KV_OPEN_IS_PACKED;
  layout.packed_block_bytes = head_bytes(shape) * shape.n_kv_heads;
  layout.alignment = 64;
  layout.query_floats = padded_dim(shape);
  layout.truncate_granularity = 1;
  layout.bits_per_element = static_cast<float>(pitch(shape) * 8) / static_cast<float>(shape.head_dim);
  layout.error_bound = element_ == Element::f32 ? 0.0f : element_ == Element::f16 ? 4.8828125e-4f : 3.90625e-3f;
}

}  // namespace turbo::kv_float
