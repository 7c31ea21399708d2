/* arch_pack: a device of one tier: memory, weights, KV pool, plans (draft).
 *
 * The pack asks the host's registry for the weight formats and KV codecs of its own tier; fusing their kernels
 * is its private matter. Calls are [engine] unless tagged. On device tiers run enqueues and returns; sync waits. */
#ifndef TURBO_ABI_DRAFT_ARCH_PACK_H
#define TURBO_ABI_DRAFT_ARCH_PACK_H

#include <turbo/abi/draft/program.h>
#include <turbo/abi/weight_format.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Host service for packs: components resolved for this tier. */
#define TURBO_HOST_REGISTRY_DRAFT "turbo.host.registry/draft1"
typedef struct turbo_host_registry {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  /* [load] The format that serves a GGUF type; TURBO_UNSUPPORTED names the type. */
  turbo_status (*weight_format)(void* ctx, uint32_t type, const turbo_weight_format** format, void** instance, turbo_error* error);
  /* [load] The codec of one side of one layer, as of now: ask anew for every pool. */
  turbo_status (*kv_codec)(void* ctx, uint32_t side, uint32_t layer, const turbo_kv_codec** codec, void** instance, turbo_error* error);
} turbo_host_registry;

#define TURBO_ARCH_PACK_DRAFT "turbo.arch_pack/draft2"

typedef struct turbo_device_info {
  uint32_t struct_size;
  uint32_t threads;      /* CPU: team size; device: compute units */
  char name[128];        /* "AMD EPYC", "AMD Radeon RX 6700 XT" */
  char isa[64];          /* "avx512_vnni", "gfx1031" */
  uint64_t memory_bytes; /* usable for weights and cache */
} turbo_device_info;

/* Where a weight lies in a tensor-parallel group; {0, 1, 0} = whole. */
typedef struct turbo_shard { uint32_t index, count, axis; } turbo_shard;

typedef struct turbo_weight_source {
  uint32_t struct_size;
  uint32_t type;        /* GGUF number */
  const char* name;
  uint64_t rows, cols;  /* vectors: rows = 1 */
  const void* data;     /* mapped file, valid for the call; for its whole life when the format packs nothing */
  uint64_t bytes;
  turbo_shard shard;
} turbo_weight_source;

typedef struct turbo_kv_pool_desc {
  uint32_t struct_size;
  uint32_t n_layers, n_kv_heads, head_dim_k, head_dim_v;
  uint32_t n_blocks;      /* blocks of 64 positions */
  uint32_t n_open_blocks; /* open forms; ignored when both codecs' open form is packed */
} turbo_kv_pool_desc;

/* One position of the cache: both ids of its block, as in the step table, and the row in it. An id of a form that the
 * pool's codecs do not have is not looked at. */
typedef struct turbo_kv_place {
  uint32_t struct_size;
  uint32_t row; /* 0..63 */
  int32_t block_id, open_id;
} turbo_kv_place;

typedef struct turbo_kv_bytes {
  uint32_t struct_size;
  uint32_t open_is_packed;   /* both sides */
  uint64_t block_bytes;      /* one block id, all layers, both sides */
  uint64_t open_block_bytes; /* one open id, all layers, both sides */
  uint32_t sinks;
  uint32_t reserved;
} turbo_kv_bytes;

typedef struct turbo_step_caps {
  uint32_t struct_size;
  uint32_t rows, sequences, logit_rows, blocks_per_sequence, path;
  uint32_t mask_words; /* of a logit row's token mask: (vocabulary + 31) / 32; 0 = no masks */
  uint32_t reserved;
} turbo_step_caps;

typedef struct turbo_arch_pack {
  uint32_t struct_size;
  uint32_t reserved;
  turbo_status (*device)(void* self, turbo_device_info* info, turbo_error* error);  /* [load] */
  uint32_t (*supports)(void* self, uint32_t op_kind);                               /* [any] 1 if compile knows the op */
  turbo_status (*self_test)(void* self, turbo_error* error);                        /* [load] ops against known answers */

  turbo_status (*weight_load)(void* self, const turbo_weight_source* source, turbo_weight** weight, turbo_error* error); /* [load] */
  uint64_t (*weight_bytes)(void* self, const turbo_weight* weight);                 /* [any] resident, packed */
  uint32_t (*weight_in_place)(void* self, const turbo_weight* weight);              /* [any] 1: reads the source mapping */
  void (*weight_free)(void* self, turbo_weight* weight);                            /* [load] */

  turbo_status (*kv_bytes)(void* self, const turbo_kv_pool_desc* desc, turbo_kv_bytes* bytes, turbo_error* error); /* [load] */
  turbo_status (*kv_create)(void* self, const turbo_kv_pool_desc* desc, turbo_kv_pool** pool, turbo_error* error); /* [load] */
  void (*kv_free)(void* self, turbo_kv_pool* pool);
  turbo_status (*kv_pack)(void* self, turbo_kv_pool* pool, int32_t open_id, int32_t block_id, turbo_error* error);
  turbo_status (*kv_copy)(void* self, turbo_kv_pool* pool, int32_t src_block, int32_t dst_block, uint32_t form, turbo_error* error);
  /* Copy one position of the open (or only) form between blocks, all layers, both sides. */
  turbo_status (*kv_move_row)(void* self, turbo_kv_pool* pool, const turbo_kv_place* src, const turbo_kv_place* dst, turbo_error* error);
  /* [load] Raw bytes of a block for save and restore; bytes = block_bytes or open_block_bytes. */
  turbo_status (*kv_read)(void* self, turbo_kv_pool* pool, int32_t id, uint32_t form, void* dst, uint64_t bytes, turbo_error* error);
  turbo_status (*kv_write)(void* self, turbo_kv_pool* pool, int32_t id, uint32_t form, const void* src, uint64_t bytes, turbo_error* error);

  turbo_status (*table_create)(void* self, const turbo_step_caps* caps, turbo_step_table** table, turbo_error* error); /* [load] */
  void (*table_free)(void* self, turbo_step_table* table);

  /* [load][engine] The program and its arrays are borrowed for the call. */
  turbo_status (*compile)(void* self, const turbo_program* program, turbo_plan** plan, turbo_error* error);
  uint64_t (*plan_bytes)(void* self, const turbo_plan* plan); /* workspace */
  void (*plan_free)(void* self, turbo_plan* plan);
  turbo_status (*run)(void* self, turbo_plan* plan, turbo_step_table* table, turbo_error* error);
  turbo_status (*sync)(void* self, turbo_error* error); /* null: run is synchronous */
  /* A kept or input buffer: {rows, width} f32, borrowed until the next run of the plan. */
  turbo_status (*plan_buffer)(void* self, turbo_plan* plan, uint32_t buffer, turbo_view* view, turbo_error* error);
  /* One line for `turbo plan`: how this program will run (fused, graph, plain). */
  const char* (*plan_explain)(void* self, const turbo_plan* plan);
  /* Copy rows of a kept buffer to host memory; null when plan_buffer gives host memory. */
  turbo_status (*plan_read)(void* self, turbo_plan* plan, uint32_t buffer, uint64_t row_begin, uint64_t n_rows, float* dst,
                            turbo_error* error);
} turbo_arch_pack;

/* Host service for drafters with a network: the same pack, weights formats and stream as the target. */
#define TURBO_HOST_PROGRAM_DRAFT "turbo.host.program/draft2"
typedef struct turbo_host_program {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  const turbo_arch_pack* pack; /* function table */
  void* pack_instance;
  /* [load] A weight of the target already loaded (shared embedding, output matrix), by GGUF name. */
  turbo_status (*target_weight)(void* ctx, const char* name, const turbo_weight** weight, turbo_error* error);
  /* [load] A KV pool with the same block ids as the target's, in the target's codecs, for the drafter's own layers. */
  turbo_status (*kv_create)(void* ctx, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim_k, uint32_t head_dim_v,
                            turbo_kv_pool** pool, turbo_error* error);
  /* [engine] Block ids of a sequence (as given to drafter.open), to copy into a step table. */
  turbo_status (*block_table)(void* ctx, uint32_t sequence, const int32_t** blocks, const int32_t** open_blocks, uint32_t* n);
} turbo_host_program;

#ifdef __cplusplus
}
#endif
#endif
