#include "reference.h"

#include <cstring>

extern "C" const turbo_code_object turbo_kernels_reference[];
extern "C" const uint32_t turbo_n_kernels_reference;

namespace turbo::arch_rdna2 {
namespace {

const Reference& of(void* self) { return *static_cast<const Reference*>(self); }
uint64_t blocks(uint64_t n) { return (n + kThreads - 1) / kThreads; }

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
const turbo_weight_format kFormat = {sizeof(turbo_weight_format), 0, &types, &packed_size, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr};

turbo_status check_matmul(void*, const turbo_device_matmul* args, turbo_error* error) {
  const bool bare = args->n_matrices == 1 && args->fuse == TURBO_FUSE_NONE && !args->norm && !args->bias[0] && !args->x_rows && !args->x_q8.rows && !args->out_q8.rows;
  return bare ? TURBO_OK : fill_error(error, TURBO_UNSUPPORTED, "the plain format multiplies by one matrix");
}
uint64_t no_bytes(void*, const turbo_device_matmul*) { return 0; }
turbo_status matmul(void* self, turbo_stream*, const turbo_device_matmul* args, turbo_error* error) {
  return guarded(error, [&] { of(self).matmul(*args); });
}
turbo_status check_gather(void*, const turbo_device_gather* args, turbo_error* error) {
  return guarded(error, [&] {
    if (args->out_q8.rows) throw Failure(TURBO_UNSUPPORTED, "nothing is fused");
  });
}
turbo_status gather(void* self, turbo_stream*, const turbo_device_gather* args, turbo_error* error) {
  return guarded(error, [&] { of(self).gather(*args); });
}
const turbo_weight_format_device kDeviceFormat = {sizeof(turbo_weight_format_device), 0, &check_matmul, &no_bytes, &matmul, &check_gather, &gather};

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
uint64_t fingerprint(void*) { return 1; }
const turbo_kv_codec kCodec = {sizeof(turbo_kv_codec), 0,       &layout, nullptr, nullptr,      nullptr, nullptr,
                               nullptr,                nullptr, nullptr, nullptr, &fingerprint, nullptr};

turbo_status append(void* self, turbo_stream*, const turbo_device_kv* kv, const turbo_device_table* table, uint32_t max_rows, const float* rows,
                    uint64_t stride, turbo_error* error) {
  return guarded(error, [&] { of(self).append(*kv, *table, max_rows, rows, stride); });
}
turbo_status move_row(void* self, turbo_stream*, const turbo_device_kv* kv, uint32_t n, int32_t src, uint32_t src_row, int32_t dst, uint32_t dst_row,
                      turbo_error* error) {
  return guarded(error, [&] { of(self).move_row(kv, n, src, src_row, dst, dst_row); });
}
turbo_status check_attend(void*, const turbo_device_attend*, uint64_t, turbo_error* error) {
  return fill_error(error, TURBO_UNSUPPORTED, "the plain codec gives scores and values");
}
turbo_status scores(void* self, turbo_stream*, const turbo_device_attend* args, uint32_t begin, uint32_t n, float* scores, uint64_t stride,
                    turbo_error* error) {
  return guarded(error, [&] { of(self).scores(*args, begin, n, scores, stride); });
}
turbo_status accumulate(void* self, turbo_stream*, const turbo_device_attend* args, uint32_t begin, uint32_t n, const float* weights,
                        uint64_t weight_stride, float* partials, uint64_t partial_stride, turbo_error* error) {
  return guarded(error, [&] { of(self).accumulate(*args, begin, n, weights, weight_stride, partials, partial_stride); });
}
const turbo_kv_codec_device kDeviceCodec = {sizeof(turbo_kv_codec_device), 0, &append, nullptr, &move_row, &check_attend, nullptr, nullptr, &scores,
                                            &accumulate};

}  // namespace

Reference::Reference(const turbo_device& device)
    : Kernels(device, turbo_kernels_reference, turbo_n_kernels_reference), matmul_(find("rdna2_plain_matmul")), gather_(find("rdna2_plain_gather")),
      append_(find("rdna2_plain_append")), move_(find("rdna2_plain_move")), scores_(find("rdna2_plain_scores")), values_(find("rdna2_plain_values")) {}

Format Reference::format(uint32_t type) const {
  if (type != TURBO_TYPE_F32) throw Failure(TURBO_UNSUPPORTED, "the plain format serves F32 only");
  return {&kFormat, &kDeviceFormat, const_cast<Reference*>(this)};
}
Codec Reference::codec(uint32_t, uint32_t) const { return {&kCodec, &kDeviceCodec, const_cast<Reference*>(this), 1}; }

void Reference::matmul(const turbo_device_matmul& args) const {
  const turbo_matrix& m = *args.matrices[0];
  launch(matmul_, PlainMatmulArgs{args.n_rows, args.x, static_cast<const float*>(m.packed), args.out[0], args.x_stride, args.out_stride[0],
                                  static_cast<uint32_t>(m.rows), static_cast<uint32_t>(m.cols)},
         (m.rows + kThreads / 32 - 1) / (kThreads / 32), args.max_rows);
}
void Reference::gather(const turbo_device_gather& args) const {
  const turbo_matrix& matrix = *args.matrix;
  launch(gather_, PlainGatherArgs{args.n_rows, args.ids, static_cast<const float*>(matrix.packed), args.dst, args.dst_stride, static_cast<uint32_t>(matrix.cols), 0},
         blocks(matrix.cols), args.max_rows);
}
void Reference::append(const turbo_device_kv& kv, const turbo_device_table& table, uint32_t max_rows, const float* rows, uint64_t stride) const {
  launch(append_, PlainAppendArgs{table, kv, rows, stride}, blocks(uint64_t{kv.n_kv_heads} * kv.head_dim), max_rows);
}
void Reference::move_row(const turbo_device_kv* kv, uint32_t n, int32_t src, uint32_t src_row, int32_t dst, uint32_t dst_row) const {
  for (uint32_t i = 0; i < n; ++i) {
    const auto block = [&](int32_t id) { return reinterpret_cast<float*>(kv[i].base + static_cast<uint64_t>(id) * kv[i].stride); };
    launch(move_, PlainMoveArgs{block(src), block(dst), src_row, dst_row, kv[i].n_kv_heads, kv[i].head_dim},
           blocks(uint64_t{kv[i].n_kv_heads} * kv[i].head_dim));
  }
}
void Reference::scores(const turbo_device_attend& args, uint32_t begin, uint32_t n, float* scores, uint64_t stride) const {
  launch(scores_, PlainAttendArgs{args.table, args.k, args.q, nullptr, scores, args.q_stride, 0, stride, args.n_heads, begin, n, args.scale}, n,
         args.n_heads, args.max_rows);
}
void Reference::accumulate(const turbo_device_attend& args, uint32_t begin, uint32_t n, const float* weights, uint64_t weight_stride, float* partials,
                           uint64_t partial_stride) const {
  launch(values_, PlainAttendArgs{args.table, args.v, nullptr, weights, partials, 0, weight_stride, partial_stride, args.n_heads, begin, n, 0}, n,
         args.n_heads, args.max_rows);
}

}  // namespace turbo::arch_rdna2
