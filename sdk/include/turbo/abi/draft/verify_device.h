/* Verification on a device tier (draft): tree ops over device memory, and chains of drafts in few launches. Offered by
 * samplers of such a tier. Every call enqueues on the stream and may be captured; arrays are device memory, 64-bit offsets.
 * Results are those of turbo/kernel/tree_ops.hpp and turbo/kernel/chain_ops.hpp, entry by entry; only the last token of a
 * coin walk may differ where its coin lies within rounding (1e-12) of an edge. */
#ifndef TURBO_ABI_DRAFT_VERIFY_DEVICE_H
#define TURBO_ABI_DRAFT_VERIFY_DEVICE_H

#include <turbo/abi/draft/device.h>
#include <turbo/abi/draft/tree_ops.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_TREE_OPS_DEVICE_DRAFT "turbo.tree_ops.device/draft1"

/* As turbo_tree_ops. malformed: device, [n_requests], each entry is written: 1 when nothing of the request is meant (no
 * tree, ids out of range). The same library's turbo_tree_ops takes host arrays and waits. [engine] */
typedef struct turbo_tree_ops_device {
  uint32_t struct_size;
  uint32_t reserved;
  turbo_status (*build)(void* self, turbo_stream* stream, const turbo_tree_build* args, uint32_t* malformed, turbo_error* error);
  turbo_status (*link)(void* self, turbo_stream* stream, const turbo_tree_links* args, turbo_error* error);
  turbo_status (*verify_greedy)(void* self, turbo_stream* stream, const turbo_tree_walk* walk, const int64_t* target, uint32_t* malformed,
                                turbo_error* error);
  turbo_status (*verify_coins)(void* self, turbo_stream* stream, const turbo_tree_walk* walk, const turbo_tree_coins* coins, uint32_t* malformed,
                               turbo_error* error);
  /* Segment b is x[in_offsets[b], in_offsets[b + 1]), its bits go to y from out_offsets[b] on, lowest first. */
  turbo_status (*pack_bits)(void* self, turbo_stream* stream, const uint8_t* x, const uint64_t* in_offsets, uint32_t n_segments,
                            const uint64_t* out_offsets, uint8_t* y, turbo_error* error);
} turbo_tree_ops_device;

#define TURBO_CHAIN_OPS_DRAFT "turbo.chain_ops/draft1"

/* Logits are f32, `stride` floats from row to row. Argmax: lowest index of the greatest value, zeros equal, NaN reads as
 * -1e30. scratch: scratch_bytes(rows) of device memory for one stream at a time, reset before its first use and after any
 * failed launch. nan arrays are set to 1 and never cleared. */
typedef struct turbo_draft_step {
  uint32_t struct_size;
  uint32_t rows;
  const float* logits;
  uint64_t stride;
  uint32_t vocab;
  uint32_t column;             /* of draft_tokens that takes the token */
  void* scratch;
  int64_t* token;              /* [rows] */
  float* probability;          /* [rows] 1; null: not wanted */
  int64_t* draft_tokens;       /* [rows][draft_stride]; null: not wanted */
  uint64_t draft_stride;
  const int64_t* first_tokens; /* [rows] into column 0, in the first step alone; null otherwise */
  int64_t* positions;          /* [rows] incremented; null: none */
  const int64_t* target_id;    /* [vocab] of a reduced draft vocabulary; null: ids are the target's */
  uint32_t* nan;               /* [rows]; may be null */
} turbo_draft_step;

/* Request i of B, place j of W, flat row r = i W + j; place 0 is the root. For batches that are greedy throughout. */
typedef struct turbo_chain_verify {
  uint32_t struct_size;
  uint32_t n_requests;         /* B */
  uint32_t width;              /* W */
  uint32_t vocab;
  const float* logits;         /* [B W] */
  uint64_t stride;
  void* scratch;               /* of B W rows */
  const int64_t* candidates;   /* [B][W] */
  int32_t* predict;            /* [B W] the target's token up to the last accepted place, 0 beyond */
  int32_t* accept_index;       /* [B][W] flat row, -1 beyond */
  int32_t* num_correct;        /* [B] accepted drafts */
  int32_t* accept_lens;        /* [B] num_correct + 1 */
  int32_t* target;             /* [B W] the target's token of every row; null: not wanted */
  uint32_t* nan;               /* [B]; may be null */
} turbo_chain_verify;

/* What verify gives, for measurements: as if *length places had been right (device, clamped to 1..W). */
typedef struct turbo_simulated_accept {
  uint32_t struct_size;
  uint32_t n_requests, width;
  int32_t fixed_token;         /* predicted everywhere when candidates is null */
  const uint32_t* length;
  const int64_t* candidates;
  const int32_t* target;       /* [B W], with candidates */
  int32_t *predict, *accept_index, *num_correct, *accept_lens;
} turbo_simulated_accept;

typedef struct turbo_chain_tree {
  uint32_t struct_size;
  uint32_t n_requests, width;
  uint32_t reserved;
  const int32_t* seq;          /* [B] committed length; padded requests may have less than 1 */
  const int64_t* bonus;        /* [B] root of the chain */
  const int64_t* drafts;       /* [B][draft_stride] */
  uint64_t draft_stride;
  int64_t* tokens;             /* [B W] */
  int64_t* positions;          /* [B W] seq + j */
  int64_t *retrieve_index, *next_token, *next_sibling; /* [B][W] */
  uint8_t* mask;               /* [B][W][W]; null: not wanted */
  const int32_t* slot_table;   /* [B][slot_stride] slot by position */
  uint64_t slot_stride;
  int32_t* slots;              /* [B W], -1 past the table; null: not wanted */
  int64_t* sections;           /* [3][B W] the position in each; null: not wanted */
  /* The draft's own rows over the same window; prefix_lens null: none of them is wanted. */
  int32_t* prefix_lens;        /* [B] max(seq, 0) */
  int32_t* extend_lens;        /* [B] W */
  int32_t* post_lens;          /* [B] seq + W */
  int64_t* extend_positions;   /* [B W] */
  int32_t* start_locs;         /* [B] i W */
} turbo_chain_tree;

typedef struct turbo_chain_commit {
  uint32_t struct_size;
  uint32_t n_requests, width;
  uint32_t relay_size;
  const int32_t *predict, *accept_index, *accept_lens;
  const int32_t* seq;          /* [B] */
  const int32_t* slot;         /* [B] in the relay; -1: a padded request, which commits nothing */
  int64_t* bonus;              /* [B] */
  int32_t* new_lens;           /* [B] seq + accept_lens */
  int64_t* select;             /* [B] flat row of the last accepted place */
  int32_t* relay_lens;         /* [relay_size] by slot */
  int32_t* accept_offsets;     /* [B + 1] accepted places of all requests before, padded ones having none; null: not wanted */
} turbo_chain_commit;

typedef struct turbo_chain_ops {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t (*scratch_bytes)(void* self, uint32_t rows);                                                               /* [load] */
  turbo_status (*reset)(void* self, turbo_stream* stream, void* scratch, uint32_t rows, turbo_error* error);            /* [engine] */
  turbo_status (*draft_step)(void* self, turbo_stream* stream, const turbo_draft_step* args, turbo_error* error);       /* [engine] */
  turbo_status (*verify)(void* self, turbo_stream* stream, const turbo_chain_verify* args, turbo_error* error);         /* [engine] */
  turbo_status (*build_tree)(void* self, turbo_stream* stream, const turbo_chain_tree* args, turbo_error* error);       /* [engine] */
  turbo_status (*commit)(void* self, turbo_stream* stream, const turbo_chain_commit* args, turbo_error* error);         /* [engine] */
  /* Null outside builds for measurements. */
  turbo_status (*simulated_accept)(void* self, turbo_stream* stream, const turbo_simulated_accept* args, turbo_error* error);
} turbo_chain_ops;

#ifdef __cplusplus
}
#endif
#endif
