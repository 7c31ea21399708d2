#include "reference.h"

#include <turbo/kernel/lanes.h>

#include <cstring>

namespace turbo::arch_cpu {
namespace {

turbo_status types(void*, const turbo_type_info** out, uint32_t* n) {
  static const turbo_type_info info = {sizeof(turbo_type_info), TURBO_TYPE_F32, "f32", 1, 4};
  *out = &info;
  *n = 1;
  return TURBO_OK;
}
turbo_status packed_size(void*, uint32_t, uint64_t, uint64_t, uint64_t* bytes, uint64_t* alignment, uint32_t* tile, turbo_error*) {
  *bytes = 0;
  *alignment = 64;
  *tile = 1;
  return TURBO_OK;
}
turbo_status repack(void*, uint32_t, uint64_t, uint64_t, const void*, uint64_t, void*, uint64_t, uint64_t, turbo_error*) { return TURBO_OK; }
void decode_rows(void*, const turbo_matrix* m, uint64_t begin, uint64_t end, float* dst) {
  std::memcpy(dst, static_cast<const float*>(m->packed) + begin * m->cols, (end - begin) * m->cols * sizeof(float));
}
const char* activation_id(void*, uint32_t) { return "f32"; }
uint64_t activation_bytes(void*, uint32_t, uint64_t cols) { return align_up(cols * sizeof(float), 64); }
void prepare_row(void*, uint32_t, const float* x, uint64_t cols, void* dst) { std::memcpy(dst, x, cols * sizeof(float)); }
void matmul(void*, const turbo_matmul* args) {
  const turbo_matrix& m = *args->matrix;
  for (uint32_t r = 0; r < args->n_rows; ++r) {
    const float* x = reinterpret_cast<const float*>(static_cast<const uint8_t*>(args->activations) + r * args->activation_stride);
    for (uint64_t o = args->out_begin; o < args->out_end; ++o)
      args->out[r * args->out_stride + o] = turbo_dot_f32(static_cast<const float*>(m.packed) + o * m.cols, x, m.cols);
  }
}
const turbo_weight_format kFormat = {sizeof(turbo_weight_format), 0,   &types,           &packed_size, &repack,
                                     &decode_rows,                &activation_id, &activation_bytes, &prepare_row, &matmul};

turbo_status layout(void*, const turbo_kv_shape* shape, turbo_kv_layout* layout, turbo_error*) {
  *layout = {};
  layout->struct_size = sizeof *layout;
  layout->flags = TURBO_KV_OPEN_IS_PACKED;
  layout->packed_block_bytes = uint64_t{shape->n_kv_heads} * TURBO_KV_BLOCK * shape->head_dim * sizeof(float);
  layout->alignment = 64;
  layout->query_floats = shape->head_dim;
  layout->truncate_granularity = 1;
  layout->bits_per_element = 32;
  return TURBO_OK;
}
uint64_t place(const turbo_kv_shape* shape, uint32_t head, uint32_t row) { return (uint64_t{head} * TURBO_KV_BLOCK + row) * shape->head_dim; }
turbo_status append(void*, const turbo_kv_shape* shape, void* block, uint32_t row, const float* src, uint32_t begin, uint32_t end) {
  for (uint32_t head = begin; head < end; ++head)
    std::memcpy(static_cast<float*>(block) + place(shape, head, row), src + uint64_t{head} * shape->head_dim, shape->head_dim * sizeof(float));
  return TURBO_OK;
}
void prepare_query(void*, const turbo_kv_shape* shape, uint32_t, const float* query, float* prepared) {
  std::memcpy(prepared, query, shape->head_dim * sizeof(float));
}
void qk_scores(void*, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* queries, uint64_t query_stride, float* scores, uint64_t score_stride) {
  const float* keys = static_cast<const float*>(run->block) + place(shape, run->kv_head, run->row_begin);
  for (uint32_t q = 0; q < run->n_queries; ++q)
    for (uint32_t i = 0; i < run->n_rows; ++i)
      scores[q * score_stride + i] = turbo_dot_f32(queries + q * query_stride, keys + uint64_t{i} * shape->head_dim, shape->head_dim);
}
void pv_accumulate(void*, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* weights, uint64_t weight_stride, float* out, uint64_t out_stride) {
  const float* values = static_cast<const float*>(run->block) + place(shape, run->kv_head, run->row_begin);
  for (uint32_t q = 0; q < run->n_queries; ++q)
    for (uint32_t i = 0; i < run->n_rows; ++i)
      for (uint32_t e = 0; e < shape->head_dim; ++e)
        out[q * out_stride + e] = fmaf(weights[q * weight_stride + i], values[uint64_t{i} * shape->head_dim + e], out[q * out_stride + e]);
}
void finish_output(void*, const turbo_kv_shape* shape, uint32_t, const float* accumulated, float* output) {
  std::memcpy(output, accumulated, shape->head_dim * sizeof(float));
}
void move_row(void*, const turbo_kv_shape* shape, const void* src, uint32_t src_row, void* dst, uint32_t dst_row) {
  for (uint32_t head = 0; head < shape->n_kv_heads; ++head)
    std::memmove(static_cast<float*>(dst) + place(shape, head, dst_row), static_cast<const float*>(src) + place(shape, head, src_row), shape->head_dim * sizeof(float));
}
void decode_row(void*, const turbo_kv_shape* shape, uint32_t, const void* block, uint32_t row, float* dst) {
  for (uint32_t head = 0; head < shape->n_kv_heads; ++head)
    std::memcpy(dst + uint64_t{head} * shape->head_dim, static_cast<const float*>(block) + place(shape, head, row), shape->head_dim * sizeof(float));
}
uint64_t fingerprint(void*) { return 1; }
const turbo_kv_codec kCodec = {sizeof(turbo_kv_codec), 0,        &layout,  &append,     nullptr,      &prepare_query, &qk_scores,
                               &pv_accumulate,         &finish_output, &move_row, &decode_row, &fingerprint, nullptr};

}  // namespace

FormatSource reference_formats() {
  return {nullptr, [](void*, uint32_t type, const turbo_weight_format** format, void** self, turbo_error* error) -> turbo_status {
            *format = &kFormat;
            *self = nullptr;
            return type == TURBO_TYPE_F32 ? TURBO_OK : fill_error(error, TURBO_UNSUPPORTED, "the reference format serves F32 only");
          }};
}
CodecSource reference_codecs() {
  return {nullptr, [](void*, uint32_t, uint32_t, const turbo_kv_codec** codec, void** self, turbo_error*) -> turbo_status {
            *codec = &kCodec;
            *self = nullptr;
            return TURBO_OK;
          }};
}

}  // namespace turbo::arch_cpu
