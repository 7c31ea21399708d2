/* kv_codec: how keys or values of 64-position blocks are stored, and how attention reads them (draft).
 *
 * The cache is a pool of blocks. A block holds TURBO_KV_BLOCK consecutive positions of one sequence for one
 * layer and one side (K or V) and all its kv heads. It has two forms:
 *   open    rows as appended (the codec says in which element type); the form a query reads for keys of its
 *           own block and for sink positions;
 *   packed  written once from a closed, committed block.
 * A codec whose open rows already are its final form sets TURBO_KV_OPEN_IS_PACKED and has one form only.
 * Attention works straight on either form: the query is transformed once (prepare_query), scores and weighted
 * sums run on codes, the output is transformed back once (finish_output). There is never a decoded copy.
 *
 * Numbers: score of one key = dot over head_dim in 16 virtual lanes and the fixed tree (turbo/kernel/lanes.h);
 * value accumulation is one fused multiply-add per key and element, keys in rising position. So a row's bits
 * do not depend on batch, width, chunking or how a caller cuts key runs. encode is a pure function. */
#ifndef TURBO_ABI_DRAFT_KV_CODEC_H
#define TURBO_ABI_DRAFT_KV_CODEC_H

#include <turbo/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_KV_CODEC_DRAFT "turbo.kv_codec/draft1"
#define TURBO_KV_BLOCK 64u

#define TURBO_KV_SIDE_K 0u
#define TURBO_KV_SIDE_V 1u
#define TURBO_KV_FORM_OPEN 0u
#define TURBO_KV_FORM_PACKED 1u

#define TURBO_KV_OPEN_IS_PACKED 1u

typedef struct turbo_kv_shape {
  uint32_t struct_size;
  uint32_t side;       /* TURBO_KV_SIDE_* */
  uint32_t layer, n_layers;
  uint32_t n_kv_heads;
  uint32_t head_dim;
} turbo_kv_shape;

typedef struct turbo_kv_layout {
  uint32_t struct_size;
  uint32_t flags;                /* TURBO_KV_OPEN_IS_PACKED */
  uint64_t packed_block_bytes;   /* one block, one layer, this side, all heads */
  uint64_t open_block_bytes;     /* 0 when open is packed */
  uint32_t alignment;            /* of both forms, power of two */
  uint32_t query_floats;         /* floats of one prepared query (K), of one raw output row (V) */
  uint32_t truncate_granularity; /* positions; 1 = any */
  uint32_t sinks;                /* first positions always read in open form */
  float bits_per_element;        /* packed, scales included */
  float error_bound;             /* relative RMS error of a decoded unit vector, for the validator */
} turbo_kv_layout;

/* One run of consecutive rows of one block. */
typedef struct turbo_kv_run {
  uint32_t struct_size;
  uint32_t form;      /* TURBO_KV_FORM_* */
  const void* block;  /* base of the block in that form */
  uint32_t row_begin; /* 0..63 */
  uint32_t n_rows;    /* keys of the run */
  uint32_t kv_head;
  uint32_t n_queries; /* query rows that read this run: heads of the group times step rows */
  /* A hint, or null: base of the packed block whose rows of the same places and head are asked for next. Memory to
   * fetch while this run is computed, never to read. */
  const void* ahead;
} turbo_kv_run;

typedef struct turbo_kv_codec {
  uint32_t struct_size;
  uint32_t reserved;
  turbo_status (*layout)(void* self, const turbo_kv_shape* shape, turbo_kv_layout* layout, turbo_error* error); /* [load] */
  /* [team] Write one position: src is [n_kv_heads][head_dim] f32 for heads [head_begin, head_end), into the open
   * form at row. TURBO_CORRUPT_INPUT on NaN or infinity where the codec cannot hold them. */
  turbo_status (*append)(void* self, const turbo_kv_shape* shape, void* block, uint32_t row, const float* src,
                         uint32_t head_begin, uint32_t head_end);
  /* [team] Pack a closed block; null when open is packed. */
  turbo_status (*pack)(void* self, const turbo_kv_shape* shape, const void* open_block, void* packed_block);
  /* [team] K side: query [head_dim] -> prepared [query_floats] for a form. In place not allowed. */
  void (*prepare_query)(void* self, const turbo_kv_shape* shape, uint32_t form, const float* query, float* prepared);
  /* [team] K side: scores[q * score_stride + i] = <prepared query q, key row_begin + i>. Queries are
   * queries[q * query_stride]. Unscaled. */
  void (*qk_scores)(void* self, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* queries, uint64_t query_stride,
                    float* scores, uint64_t score_stride);
  /* [team] V side: out[q * out_stride + e] += weight[q * weight_stride + i] * value(row_begin + i)[e], i rising,
   * in the codec's own basis. */
  void (*pv_accumulate)(void* self, const turbo_kv_shape* shape, const turbo_kv_run* run, const float* weights,
                        uint64_t weight_stride, float* out, uint64_t out_stride);
  /* [team] V side: accumulated [query_floats] of a form -> output [head_dim]. */
  void (*finish_output)(void* self, const turbo_kv_shape* shape, uint32_t form, const float* accumulated, float* output);
  /* [engine] Open form: copy one position between blocks (tree compaction). */
  void (*move_row)(void* self, const turbo_kv_shape* shape, const void* src_block, uint32_t src_row, void* dst_block, uint32_t dst_row);
  /* [any] Plain decode of one row, all heads: dst [n_kv_heads][head_dim]. For tests and tools. */
  void (*decode_row)(void* self, const turbo_kv_shape* shape, uint32_t form, const void* block, uint32_t row, float* dst);
  uint64_t (*fingerprint)(void* self); /* [any] of everything that decides stored bits, but for the centers */
  /* [load] K side, before any append: center [n_kv_heads][head_dim] is subtracted from every key of the layer before it
   * is stored, in both forms; decode_row adds it back. Scores of a query change by one constant, so attention does not.
   * Null: the codec does not center. */
  turbo_status (*set_center)(void* self, const turbo_kv_shape* shape, const float* center, turbo_error* error);
} turbo_kv_codec;

#ifdef __cplusplus
}
#endif
#endif
