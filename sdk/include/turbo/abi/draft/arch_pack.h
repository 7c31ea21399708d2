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
  /* [load] Another function table of the component that one of these instances is of, by interface id (device tiers:
   * turbo.weight_format.device, turbo.kv_codec.device); null: it has none. */
  const void* (*interface)(void* ctx, void* instance, const char* id);
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
  /* Null: run is synchronous. TURBO_CANCELLED: the last run has been taken back, and what was read of its results does not
   * count; nothing else is lost, and the same run may be asked for again. */
  turbo_status (*sync)(void* self, turbo_error* error);
  /* A kept or input buffer: {rows, width} f32, borrowed until the next run of the plan. */
  turbo_status (*plan_buffer)(void* self, turbo_plan* plan, uint32_t buffer, turbo_view* view, turbo_error* error);
  /* One line for `turbo plan`: how this program will run (fused, graph, plain). */
  const char* (*plan_explain)(void* self, const turbo_plan* plan);
  /* Copy rows of a kept buffer to host memory; null when plan_buffer gives host memory. */
  turbo_status (*plan_read)(void* self, turbo_plan* plan, uint32_t buffer, uint64_t row_begin, uint64_t n_rows, float* dst,
                            turbo_error* error);
} turbo_arch_pack;

/* A second whole model that drafts for the target. The host reads its file, holds its weights, compiles its programs and
 * keeps its KV cache, in blocks of its own; the drafter decides what to run. To it a sequence of that model is a text,
 * and behind the text a tree of nodes: node i has a token and a parent, -1 (the end of the text) or an earlier node. */
typedef struct turbo_draft_model turbo_draft_model; /* owned by the host */

typedef struct turbo_draft_source {
  uint32_t struct_size;
  uint32_t n_layers; /* run only that many first layers, then the last norm and the output matrix; 0: all */
  const char* path;  /* the file or folder that the profile names as drafter.model; null: the target's own weights */
} turbo_draft_source;

typedef struct turbo_draft_facts {
  uint32_t struct_size;
  uint32_t n_layers;      /* that run */
  uint32_t vocab_size;    /* floats of a row of logits */
  uint32_t shared_vocab;  /* ids below it mean the same in both models; no other may be run or drafted */
  uint32_t context;       /* positions of a sequence, nodes included */
  uint32_t max_nodes;     /* most nodes of a sequence at a time */
  uint32_t max_logit_rows; /* most rows of logits of one run */
  uint32_t reserved;
  uint64_t weights_bytes; /* beside the target's */
  uint64_t kv_pool_bytes;
} turbo_draft_facts;

/* What one sequence runs: tokens that continue its text, then nodes. */
typedef struct turbo_draft_group {
  uint32_t struct_size;
  uint32_t sequence;      /* as given to drafter.open; its first group begins an empty text */
  uint32_t n_tokens;      /* any number; 0 unless the sequence has no nodes */
  uint32_t n_nodes;
  const int32_t* tokens;  /* n_tokens + n_nodes */
  const int32_t* parents; /* n_nodes; nodes are numbered on from earlier runs */
  int32_t first_logits;   /* out: row of the logits after the last of the tokens (if any), then one row a node; -1: no
                             block of the cache is free, so nothing ran for this group */
  uint32_t reserved;
} turbo_draft_group;

/* Host service for drafters with a network: the same pack, weights formats and stream as the target. */
#define TURBO_HOST_PROGRAM_DRAFT "turbo.host.program/draft3"
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

  /* [load] Fails, saying why, for a file that is no model or whose tokens mean something else than the target's. */
  turbo_status (*model_open)(void* ctx, const turbo_draft_source* source, turbo_draft_model** model, turbo_draft_facts* facts,
                             turbo_error* error);
  void (*model_close)(void* ctx, turbo_draft_model* model); /* [load] */
  /* [engine] Run groups of distinct sequences at once. logits: {rows, vocab_size} f32 in host memory, borrowed until the
   * next run. A failed run leaves every text and tree as it was. */
  turbo_status (*model_run)(void* ctx, turbo_draft_model* model, turbo_draft_group* groups, uint32_t n, turbo_view* logits,
                            turbo_error* error);
  /* [engine] The nodes of a path from the end of the text, in order, become text; all others are forgotten. */
  turbo_status (*model_keep)(void* ctx, turbo_draft_model* model, uint32_t sequence, const uint32_t* nodes, uint32_t n,
                             turbo_error* error);
  void (*model_drop)(void* ctx, turbo_draft_model* model, uint32_t sequence); /* [engine] its blocks go back */
} turbo_host_program;

#ifdef __cplusplus
}
#endif
#endif
