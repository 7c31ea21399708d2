/* Device services and device-side kernel tables of the hip and generic tiers (draft).
 *
 * A format or codec library of a device tier hands its pack launchers: the pack passes its stream and the
 * buffers, the library enqueues. All are capture-safe: no allocation, no sync, no host read. */
#ifndef TURBO_ABI_DRAFT_DEVICE_H
#define TURBO_ABI_DRAFT_DEVICE_H

#include <turbo/abi/draft/arch_pack.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct turbo_stream turbo_stream; /* hipStream_t, VkCommandBuffer, ... of the tier */

#define TURBO_HOST_DEVICE_DRAFT "turbo.host.device/draft1"
typedef struct turbo_host_device {
  uint32_t struct_size;
  int32_t device;
  void* ctx;
  turbo_stream* (*stream)(void* ctx); /* [engine] the target's stream */
  turbo_status (*event_record)(void* ctx, turbo_stream* stream, uint64_t* event, turbo_error* error);
  turbo_status (*event_wait)(void* ctx, turbo_stream* stream, uint64_t event, turbo_error* error);
  uint32_t (*event_done)(void* ctx, uint64_t event); /* [any] */
} turbo_host_device;

#define TURBO_WEIGHT_FORMAT_DEVICE_DRAFT "turbo.weight_format.device/draft1"
typedef struct turbo_weight_format_device {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t (*workspace_bytes)(void* self, const turbo_matrix* matrix, uint32_t max_rows);
  turbo_status (*prepare_rows)(void* self, turbo_stream* stream, uint32_t type, const float* x, uint64_t cols,
                               const uint32_t* n_rows, uint32_t max_rows, void* dst, turbo_error* error);
  turbo_status (*matmul)(void* self, turbo_stream* stream, const turbo_matmul* args, const uint32_t* n_rows, void* workspace,
                         turbo_error* error);
  turbo_status (*gather)(void* self, turbo_stream* stream, const turbo_matrix* matrix, const int32_t* ids, const uint32_t* n_rows,
                         uint32_t max_rows, float* dst, turbo_error* error);
} turbo_weight_format_device;

#define TURBO_KV_CODEC_DEVICE_DRAFT "turbo.kv_codec.device/draft1"
/* Block b of layer l lies at base + layer_offset + b * block_stride. */
typedef struct turbo_kv_device_args {
  uint32_t struct_size;
  uint32_t max_rows;
  const turbo_kv_shape* shape;
  const turbo_step_table* table; /* arrays are device addresses */
  void* base;
  void* open_base;
  uint64_t block_stride, open_stride;
  uint32_t split_begin, n_splits; /* 64-key splits */
} turbo_kv_device_args;

typedef struct turbo_kv_codec_device {
  uint32_t struct_size;
  uint32_t reserved;
  turbo_status (*append)(void* self, turbo_stream* stream, const turbo_kv_device_args* args, const float* rows, turbo_error* error);
  turbo_status (*pack)(void* self, turbo_stream* stream, const turbo_kv_device_args* args, const int32_t* pairs, uint32_t n, turbo_error* error);
  turbo_status (*qk_scores)(void* self, turbo_stream* stream, const turbo_kv_device_args* args, const float* q, float* scores, turbo_error* error);
  turbo_status (*pv_accumulate)(void* self, turbo_stream* stream, const turbo_kv_device_args* args, const float* weights, float* out, turbo_error* error);
  /* Fused attention for K by this codec and V by the codec with this fingerprint; null entry or TURBO_UNSUPPORTED: not fused. */
  turbo_status (*attend)(void* self, turbo_stream* stream, const turbo_kv_device_args* k, const turbo_kv_device_args* v,
                         uint64_t v_fingerprint, const float* q, float* out, float scale, turbo_error* error);
} turbo_kv_codec_device;

#ifdef __cplusplus
}
#endif
#endif
