/* Step programs: one engine step of a model as a short list of ops over named buffers (draft).
 *
 * A program is compiled once by an arch pack into a plan and run every step on a step table. Ops read nothing
 * else from the host. Buffers are row-major f32 [rows][width]; `rows` is the step's row count, or its logit-row
 * count after TURBO_OP_GATHER_ROWS. All ops work on live rows only; padding rows of a device bucket write to
 * scratch. Weights are handles of the pack that compiles. */
#ifndef TURBO_ABI_DRAFT_PROGRAM_H
#define TURBO_ABI_DRAFT_PROGRAM_H

#include <turbo/abi/draft/kv_codec.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct turbo_weight turbo_weight;   /* owned by an arch pack */
typedef struct turbo_plan turbo_plan;       /* owned by an arch pack */
typedef struct turbo_kv_pool turbo_kv_pool; /* owned by an arch pack */

#define TURBO_ROWS_STEP 0u  /* one row per step row */
#define TURBO_ROWS_LOGIT 1u /* one row per logit row */

#define TURBO_NO_BUFFER 0xffffffffu

typedef struct turbo_buffer {
  uint32_t struct_size;
  uint32_t rows;    /* TURBO_ROWS_* */
  uint64_t width;   /* floats per row */
  const char* name; /* for dumps; copied by compile */
  uint32_t keep;    /* 1: readable after run through plan_buffer (logits, taps) */
  uint32_t reserved;
} turbo_buffer;

#define TURBO_OP_EMBED 1u       /* out = row token[r] of matrix weight */
#define TURBO_OP_RMS_NORM 2u    /* per group: x / sqrt(mean(x^2) + eps) * w */
#define TURBO_OP_MATMUL 3u      /* out = W in (+ bias) */
#define TURBO_OP_ADD 4u         /* out = a + b; out may be a */
#define TURBO_OP_ROPE 5u        /* rotate in place by position[r] */
#define TURBO_OP_KV_APPEND 6u   /* write K and V of the step's rows at slot[r] */
#define TURBO_OP_ATTEND 7u      /* causal (or path) attention over the cache */
#define TURBO_OP_GATED_ACT 8u   /* out = act(gate) * up */
#define TURBO_OP_GATHER_ROWS 9u /* logit rows of a step buffer */
#define TURBO_OP_TAP 10u        /* out (a kept buffer) = copy of in, for readers after the run */
#define TURBO_OP_TOP_K 11u      /* k best (id as f32 bits, value) of each row; optional */
#define TURBO_OP_CONCAT 12u     /* out = [a | b] */
/* Reserved numbers, no pack has them yet: 32 ROUTE_TOPK, 33 MATMUL_GROUPED, 34 ALL_REDUCE, 35 ALL_GATHER. */
#define TURBO_OP_ROUTE_TOPK 32u
#define TURBO_OP_MATMUL_GROUPED 33u
#define TURBO_OP_ALL_REDUCE 34u
#define TURBO_OP_ALL_GATHER 35u

#define TURBO_ROPE_HALVES 0u      /* pair (i, i + dims/2) */
#define TURBO_ROPE_INTERLEAVED 1u /* pair (2i, 2i + 1) */
#define TURBO_ACT_SILU 0u
#define TURBO_ACT_GELU_TANH 1u

typedef struct turbo_op_embed { const turbo_weight* table; uint32_t out; } turbo_op_embed;
typedef struct turbo_op_rms_norm {
  const turbo_weight* weight; /* [width / groups] */
  uint32_t in, out;           /* may be equal */
  uint32_t groups;            /* 1 for a whole row, n_heads for per-head norms */
  float eps;
} turbo_op_rms_norm;
typedef struct turbo_op_matmul {
  const turbo_weight* weight; /* rows = width of out, cols = width of in */
  const turbo_weight* bias;   /* [rows] or null */
  uint32_t in, out;
} turbo_op_matmul;
typedef struct turbo_op_add { uint32_t a, b, out; } turbo_op_add;
typedef struct turbo_op_rope {
  const turbo_weight* frequencies; /* [dims / 2] angle per position of each pair, scaling applied */
  uint32_t inout;
  uint32_t n_heads, head_dim, dims; /* first dims of each head rotate */
  uint32_t style;                   /* TURBO_ROPE_* */
  float magnitude;                  /* factor on cos and sin */
} turbo_op_rope;
typedef struct turbo_op_kv_append { uint32_t layer, k, v; } turbo_op_kv_append;
typedef struct turbo_op_attend {
  uint32_t layer;
  uint32_t q, out;
  uint32_t n_heads; /* a multiple of the pool's kv heads */
  float scale;
} turbo_op_attend;
typedef struct turbo_op_gated_act { uint32_t gate, up, out, act; } turbo_op_gated_act;
typedef struct turbo_op_gather_rows { uint32_t in, out; } turbo_op_gather_rows;
typedef struct turbo_op_tap { uint32_t in, out; } turbo_op_tap;
typedef struct turbo_op_top_k { uint32_t in, ids, values, k; } turbo_op_top_k;
typedef struct turbo_op_concat { uint32_t a, b, out; } turbo_op_concat;

typedef struct turbo_op {
  uint32_t struct_size;
  uint32_t kind; /* TURBO_OP_* */
  union {
    turbo_op_embed embed;
    turbo_op_rms_norm rms_norm;
    turbo_op_matmul matmul;
    turbo_op_add add;
    turbo_op_rope rope;
    turbo_op_kv_append kv_append;
    turbo_op_attend attend;
    turbo_op_gated_act gated_act;
    turbo_op_gather_rows gather_rows;
    turbo_op_tap tap;
    turbo_op_top_k top_k;
    turbo_op_concat concat;
    uint64_t reserved[12];
  } u;
} turbo_op;

typedef struct turbo_program {
  uint32_t struct_size;
  uint32_t max_rows;       /* row bucket: most step rows of a run */
  uint32_t max_logit_rows;
  uint32_t n_buffers;
  uint32_t n_ops;
  uint32_t n_inputs;       /* first n_inputs buffers are written by the caller through plan_buffer before run */
  const turbo_buffer* buffers;
  const turbo_op* ops;
  turbo_kv_pool* kv;       /* pool of KV_APPEND and ATTEND; null if it has none */
  const char* name;
} turbo_program;

/* Everything that differs from step to step, at addresses fixed for the table's life. The pack allocates it
 * (host-writable); the engine fills the arrays and counts, then calls run. */
typedef struct turbo_step_table {
  uint32_t struct_size;
  uint32_t row_capacity, seq_capacity, logit_capacity;
  uint32_t block_capacity; /* entries of a sequence's block table */
  uint32_t path_capacity;  /* entries of a row's path */
  /* counts of this step */
  uint32_t n_rows, n_seqs, n_logit_rows;
  /* Codecs of two forms: 0: a query reads its own block and the sinks in open form, older blocks packed. 1: from the
   * block of committed[seq] on, all in open form; such blocks have open ids. */
  uint32_t open_uncommitted;
  /* per row */
  int32_t* token;
  int32_t* position;    /* absolute */
  int32_t* row_seq;     /* sequence index in this table */
  int32_t* slot;        /* where the row's K and V go: block slot / 64 of the sequence's table, row slot % 64 */
  /* Keys of a row are positions 0..position. Position p lies at slot p while p < committed[seq]; beyond, at
   * slot path[row][p - committed[seq]]. path_length = position - committed + 1, the row itself last. 0 means
   * every position lies at its own slot (chains, prefill). */
  int32_t* path_length;
  int32_t* path;        /* [row_capacity][path_capacity] */
  /* per sequence */
  int32_t* committed;   /* positions whose tokens are final and cached before this step */
  int32_t* block_table; /* [seq_capacity][block_capacity] packed (or only) block ids, -1 none */
  int32_t* open_table;  /* same shape: open block ids; unused (-1) for codecs whose open form is packed */
  /* per logit row */
  int32_t* logit_row;   /* step row that gives logits */
  /* Token masks, [logit_capacity][mask_words], for the sampler: bit t % 32 of word t / 32 set = token t may be drawn
   * from that logit row. Null when mask_words is 0. Read only when `masked` is 1; plans never read it. */
  uint32_t* mask;
  uint32_t mask_words;
  uint32_t masked;
} turbo_step_table;

#ifdef __cplusplus
}
#endif
#endif
