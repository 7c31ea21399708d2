/* weight_format: how matrices of some GGUF types are laid out, read and multiplied on one tier.
 *
 * A matrix has `rows` outputs and `cols` inputs (GGUF dims {cols, rows}); the source holds row after row.
 * At load the format repacks the source once into the layout its kernels want; the source pages are dropped
 * afterwards, so the packed form is the only resident copy.
 *
 * Numbers. Row results do not depend on the batch: out[r][o] has the same bits whatever n_rows, whatever
 * range of outputs a call computes, whatever the thread or ISA. On the CPU tier a dot product with f32
 * activations runs in 16 virtual lanes (input j goes to lane j mod 16, fused multiply-add in rising j) and
 * the lanes are summed by the fixed tree of turbo/kernel/lanes.h. With int8 activations the integer sum of
 * one activation group is exact and the groups are accumulated in rising order by one fused multiply-add each. */
#ifndef TURBO_ABI_WEIGHT_FORMAT_H
#define TURBO_ABI_WEIGHT_FORMAT_H

#include <turbo/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_WEIGHT_FORMAT_1 "turbo.weight_format/1"

typedef struct turbo_type_info {
  uint32_t struct_size;
  uint32_t type;          /* GGUF number */
  const char* name;       /* "q1_0" */
  uint32_t block_weights; /* weights of a block, along the row */
  uint32_t block_bytes;
} turbo_type_info;

typedef struct turbo_matrix {
  uint32_t struct_size;
  uint32_t type;
  uint64_t rows, cols;
  const void* packed;    /* what repack wrote, or the source itself when packed_bytes gave 0 */
  uint64_t packed_bytes;
} turbo_matrix;

typedef struct turbo_matmul {
  uint32_t struct_size;
  uint32_t n_rows;             /* activation rows, >= 1 */
  const turbo_matrix* matrix;
  const void* activations;     /* n_rows rows as written by prepare_row */
  uint64_t activation_stride;  /* bytes between activation rows */
  float* out;                  /* out[r * out_stride + o] for o in [out_begin, out_end) */
  uint64_t out_stride;         /* floats between output rows */
  uint64_t out_begin, out_end; /* out_begin is a multiple of the matrix's tile; out_end too, or rows */
} turbo_matmul;

/* CPU tier. Device tiers use the tables of abi/draft/device.h for compute and this one for load. */
typedef struct turbo_weight_format {
  uint32_t struct_size;
  uint32_t reserved;
  /* [any] The types served; static array. */
  turbo_status (*types)(void* self, const turbo_type_info** types, uint32_t* n);
  /* [load] Bytes of the packed form (0: kernels read the source in place, mapped file pages stay in use),
   * its alignment, and the tile: outputs are computed in multiples of it. Refuses cols that are no whole
   * number of blocks. */
  turbo_status (*packed_size)(void* self, uint32_t type, uint64_t rows, uint64_t cols, uint64_t* bytes, uint64_t* alignment,
                              uint32_t* tile, turbo_error* error);
  /* [load][team] Repack source rows [row_begin, row_end) (tile-aligned as in matmul) into the packed form.
   * Disjoint ranges may run at once. source_bytes is the granted range of the whole source matrix. */
  turbo_status (*repack)(void* self, uint32_t type, uint64_t rows, uint64_t cols, const void* source, uint64_t source_bytes,
                         void* packed, uint64_t row_begin, uint64_t row_end, turbo_error* error);
  /* [team] Plain decode of rows of the packed matrix: dst[i][0..cols) for source row row_begin + i. Also the
   * embedding gather. */
  void (*decode_rows)(void* self, const turbo_matrix* matrix, uint64_t row_begin, uint64_t row_end, float* dst);
  /* [any] Activation layout its matmul reads for this type: two matrices whose ids are equal share one
   * prepared activation ("f32", "i8g128"). Static string. */
  const char* (*activation_id)(void* self, uint32_t type);
  uint64_t (*activation_bytes)(void* self, uint32_t type, uint64_t cols); /* [any] one row, multiple of 64 */
  /* [team] Write one activation row from cols floats. Pure function of x. */
  void (*prepare_row)(void* self, uint32_t type, const float* x, uint64_t cols, void* dst);
  void (*matmul)(void* self, const turbo_matmul* args); /* [team] */
} turbo_weight_format;

#ifdef __cplusplus
}
#endif
#endif
