/* Device tiers (hip, generic): what the arch pack offers to kernels of other libraries, and what weight formats, KV
 * codecs and samplers of such a tier offer to the pack (draft).
 *
 * Libraries of a device tier hold kernels, not a GPU runtime: code objects, one for each instruction set, and host code
 * that fills argument structs. The pack owns the runtime, the memory and the stream, and launches for all of them. So one
 * runtime is opened by name in one place, and a library works wherever the pack does.
 *
 * A kernel takes one argument: a plain struct by value (at most 4,000 bytes, fixed-width members and device addresses).
 * Calls that enqueue return at once; everything enqueued on a stream runs in order. All of it may be captured in a graph:
 * no allocation, no wait, no host read, and nothing but addresses and constants in the argument struct. What differs
 * from step to step is read from the step table on the device (turbo/kernel/gpu/table.hpp). */
#ifndef TURBO_ABI_DRAFT_DEVICE_H
#define TURBO_ABI_DRAFT_DEVICE_H

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/abi/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct turbo_stream turbo_stream; /* hipStream_t, VkCommandBuffer, ... of the tier */
typedef struct turbo_module turbo_module; /* a loaded code object */
typedef struct turbo_kernel turbo_kernel; /* a function of a module */

/* A code object of one instruction set: "gfx1031", "sm_90", "spirv1.5", ... */
typedef struct turbo_code_object {
  uint32_t struct_size;
  uint32_t reserved;
  const char* isa;
  const void* data;
  uint64_t bytes;
} turbo_code_object;

typedef struct turbo_launch {
  uint32_t struct_size;
  uint32_t grid_x, grid_y, grid_z; /* blocks; a grid of none is left out */
  uint32_t threads;                /* of a block, in x; at most what the kernel was bounded to */
  uint32_t shared_bytes;           /* dynamic shared memory of a block */
  const void* arguments;           /* the kernel's struct, read during the call */
  uint32_t argument_bytes;
  uint32_t resident;               /* 1: all blocks must run at once; refused when they cannot */
  uint32_t waits;                  /* 1: the kernel itself waits for those before it (every TB_KERNEL of device.hpp does),
                                    * so it may be started early where the device can */
  uint32_t whole;                  /* 1: no kernel after it on its stream is started before it has ended */
} turbo_launch;

#define TURBO_COPY_TO_DEVICE 0u
#define TURBO_COPY_TO_HOST 1u
#define TURBO_COPY_ON_DEVICE 2u

/* The pack's device. Its address and ctx live as long as the pack. */
typedef struct turbo_device {
  uint32_t struct_size;
  int32_t index;
  void* ctx;
  const char* isa;              /* as in turbo_code_object, of this device */
  uint32_t compute_units;
  uint32_t max_shared_bytes;    /* of a block, dynamic included */
  turbo_stream* stream;         /* the engine's */
  /* [load] Load the object that suits the device; TURBO_UNSUPPORTED names the instruction sets that there are. */
  turbo_status (*module_load)(void* ctx, const turbo_code_object* objects, uint32_t n, turbo_module** module, turbo_error* error);
  void (*module_unload)(void* ctx, turbo_module* module);                                                       /* [load] */
  turbo_status (*kernel)(void* ctx, turbo_module* module, const char* name, turbo_kernel** kernel, turbo_error* error); /* [load] */
  /* [load] Blocks of the kernel that the whole device holds at once. */
  turbo_status (*resident_blocks)(void* ctx, turbo_kernel* kernel, uint32_t threads, uint32_t shared_bytes, uint32_t* blocks,
                                  turbo_error* error);
  turbo_status (*launch)(void* ctx, turbo_stream* stream, turbo_kernel* kernel, const turbo_launch* launch, turbo_error* error); /* [engine] */
  /* [load] TURBO_MEMORY_DEVICE (256-byte aligned) or TURBO_MEMORY_PINNED (host memory that the device may read and write
   * at the same address), by tag as in turbo.host.alloc/1. Contents are undefined. */
  void* (*allocate)(void* ctx, uint32_t memory, uint64_t bytes, const char* tag, turbo_error* error);
  void (*release)(void* ctx, void* pointer);
  /* [engine] Enqueue. Host memory must be pinned and stay until the stream has passed the copy. */
  turbo_status (*copy)(void* ctx, turbo_stream* stream, void* dst, const void* src, uint64_t bytes, uint32_t direction, turbo_error* error);
  turbo_status (*fill)(void* ctx, turbo_stream* stream, void* dst, uint32_t byte, uint64_t bytes, turbo_error* error);
  turbo_status (*sync)(void* ctx, turbo_stream* stream, turbo_error* error); /* [load][engine] wait for all of it */
} turbo_device;

/* An arch pack of a device tier answers this id with a function table. */
#define TURBO_DEVICE_PROVIDER_DRAFT "turbo.device_provider/draft1"
typedef struct turbo_device_provider {
  uint32_t struct_size;
  uint32_t reserved;
  const turbo_device* (*device)(void* self); /* [load] */
} turbo_device_provider;

/* Formats, codecs and samplers of a device tier answer this id. The host calls attach once the pack is created, before
 * start and before any other device call; detach (null allowed) before the pack goes. */
#define TURBO_DEVICE_CLIENT_DRAFT "turbo.device_client/draft1"
typedef struct turbo_device_client {
  uint32_t struct_size;
  uint32_t reserved;
  turbo_status (*attach)(void* self, const turbo_device* device, turbo_error* error); /* [load] */
  void (*detach)(void* self);                                                         /* [load] */
} turbo_device_client;

/* The step table on the device: addresses of arrays as in turbo_step_table, counts in device memory too, so that a
 * captured graph serves every step. Kernels take it by value. */
typedef struct turbo_device_table {
  const uint32_t* counts; /* {n_rows, n_seqs, n_logit_rows, open_uncommitted} */
  const int32_t *token, *position, *row_seq, *slot;
  const int32_t *path_length, *path;
  const int32_t *committed, *block_table, *open_table;
  const int32_t* logit_row;
  uint32_t path_capacity, block_capacity;
} turbo_device_table;

/* Rows as signed bytes in tiles of 32 columns with a scale each (turbo/kernel/gpu/q8.hpp): one piece of device memory of
 * TURBO_DEVICE_Q8_BYTES, which holds, one behind the other,
 *   int8_t codes[rows][cols]
 *   struct { float scale; float sum; } scales[rows][cols / 32]
 *   float squares[rows][cols / 32]     sums of squares of what was given, before weights of a norm
 * cols is a multiple of 32. */
#define TURBO_DEVICE_Q8_TILE 32u
#define TURBO_DEVICE_Q8_BYTES(rows, cols) ((uint64_t)(rows) * ((uint64_t)(cols) + (uint64_t)(cols) / 32u * 12u))
typedef struct turbo_device_q8 {
  uint8_t* base;  /* device, 256-byte aligned */
  uint64_t rows;  /* 0: there is none */
} turbo_device_q8;

#define TURBO_FUSE_NONE 0u
#define TURBO_FUSE_ADD 1u  /* out[0] = residual + matrix 0 * x; out[0] may be residual */
#define TURBO_FUSE_SILU 2u /* out[0] = silu(matrix 0 * x) * (matrix 1 * x) */
#define TURBO_FUSE_GELU 3u /* out[0] = gelu_tanh(matrix 0 * x) * (matrix 1 * x) */
#define TURBO_FUSED_MATRICES 4u

/* Products of matrices with one input, with what comes before and after: x is normed (if norm is given), quantised as
 * the format wants, multiplied by each matrix, biased, then fused. Rows are [0, max_rows); those at or beyond *n_rows are
 * padding, whose outputs are never read.
 *
 * Formats that multiply bytes may be given the bytes of x, written by whoever made x, and write those of out[0] for the
 * product that comes next. The bytes of a row that will be normed are those of x * norm; the factor 1 / sqrt(mean(x^2) +
 * eps), which the tiles' squares give, multiplies the finished product. With and without such bytes the results have the
 * same bits. */
typedef struct turbo_device_matmul {
  uint32_t struct_size;
  uint32_t max_rows;
  const uint32_t* n_rows;   /* device */
  const float* x;           /* device, [max_rows][x_stride] */
  uint64_t x_stride, cols;  /* floats */
  const float* norm;        /* device, [cols], or null: y = x / sqrt(mean(x^2) + eps) * norm */
  float eps;
  uint32_t n_matrices;      /* 1..TURBO_FUSED_MATRICES, all of this format; packed is a device address */
  const turbo_matrix* matrices[TURBO_FUSED_MATRICES];
  const float* bias[TURBO_FUSED_MATRICES]; /* device, [rows], or null */
  float* out[TURBO_FUSED_MATRICES];
  uint64_t out_stride[TURBO_FUSED_MATRICES];
  uint32_t fuse;            /* TURBO_FUSE_* */
  uint32_t reserved;
  const float* residual;    /* TURBO_FUSE_ADD */
  uint64_t residual_stride;
  void* workspace;          /* device, workspace_bytes */
  const int32_t* x_rows;    /* device, [max_rows]: row r is row x_rows[r] of x and of x_q8; null: row r. Valid below *n_rows */
  turbo_device_q8 x_q8;     /* of x, [cols]: x is not read */
  turbo_device_q8 out_q8;   /* of out[0] * out_norm */
  const float* out_norm;    /* device, [rows of matrix 0], or null: of out[0] itself */
} turbo_device_matmul;

/* Rows of a matrix: dst[r] = row ids[r], for r < *n_rows. */
typedef struct turbo_device_gather {
  uint32_t struct_size;
  uint32_t max_rows;
  const turbo_matrix* matrix;
  const int32_t* ids;       /* device */
  const uint32_t* n_rows;   /* device */
  float* dst;               /* device, [max_rows][dst_stride] */
  uint64_t dst_stride;
  turbo_device_q8 out_q8;   /* of dst * out_norm */
  const float* out_norm;    /* device, [cols], or null */
} turbo_device_gather;

#define TURBO_WEIGHT_FORMAT_DEVICE_DRAFT "turbo.weight_format.device/draft3"
/* Beside turbo.weight_format/1, whose packed_size and repack give the bytes that the pack uploads and whose decode_rows
 * works on a host copy; matmul and prepare_row there are not called. */
typedef struct turbo_weight_format_device {
  uint32_t struct_size;
  uint32_t reserved;
  /* [load] TURBO_OK: matmul takes this form (addresses may be null). TURBO_UNSUPPORTED: the pack takes it apart; a bare
   * product of one matrix is always taken. */
  turbo_status (*check)(void* self, const turbo_device_matmul* args, turbo_error* error);
  uint64_t (*workspace_bytes)(void* self, const turbo_device_matmul* args); /* [load] */
  turbo_status (*matmul)(void* self, turbo_stream* stream, const turbo_device_matmul* args, turbo_error* error); /* [engine] */
  /* [load] As check, for gather; one without out_q8 is always taken. */
  turbo_status (*check_gather)(void* self, const turbo_device_gather* args, turbo_error* error);
  turbo_status (*gather)(void* self, turbo_stream* stream, const turbo_device_gather* args, turbo_error* error); /* [engine] */
} turbo_weight_format_device;

/* One side of one layer of the pool: block id b lies at base + b * stride in the packed (or only) form, at open_base +
 * b * open_stride in the open form. */
typedef struct turbo_device_kv {
  uint8_t* base;
  uint8_t* open_base;
  uint64_t stride, open_stride;
  uint32_t n_kv_heads, head_dim;
  uint32_t sinks; /* of the codec */
  uint32_t layer;
  uint32_t side;  /* TURBO_KV_SIDE_* */
  uint32_t reserved;
} turbo_device_kv;

/* Attention of one layer. Keys are read in chunks of TURBO_DEVICE_CHUNK positions: a weight is exp(score - largest score of
 * the chunk), sums and values of a chunk's four splits of 64 keys are added in rising order, chunks merge in rising order;
 * nothing else decides a row's bits (turbo/kernel/gpu/attend_order.hpp).
 * With k_rows, the table and keys below `committed` may be read before the launches ahead have ended: whoever fills the
 * table does it with a launch that is `whole`, or waits. */
#define TURBO_DEVICE_CHUNK 256u
typedef struct turbo_device_attend {
  uint32_t struct_size;
  uint32_t max_rows;
  turbo_device_table table;
  turbo_device_kv k, v;
  uint32_t n_heads;
  uint32_t max_chunks;    /* no row has keys at or beyond position max_chunks * 256 */
  float scale;
  uint32_t same_sequence; /* 1: rows r and r + 1 of a sequence lie together (always so in turbo's steps) */
  const float* q;         /* device, [max_rows][q_stride]: heads as the projection gave them */
  const float* k_rows;    /* device; null: the step's keys and values are in the cache already */
  const float* v_rows;
  uint64_t q_stride, k_stride, v_stride;
  /* Before the rows are used, when given: norm of each head (null: none), then rotation (rope_dims 0: none). */
  const float *q_norm, *k_norm; /* device, [head_dim] */
  float eps;
  uint32_t rope_dims, rope_style;
  float rope_magnitude;
  const float* rope_frequencies; /* device, [rope_dims / 2] */
  float* out;             /* device, [max_rows][out_stride] */
  uint64_t out_stride;
  void* workspace;
  turbo_device_q8 out_q8; /* of out, [n_heads * head_dim of the values] */
} turbo_device_attend;

#define TURBO_KV_CODEC_DEVICE_DRAFT "turbo.kv_codec.device/draft3"
/* Beside turbo.kv_codec/draft1, whose layout and fingerprint count for this tier too; its decode_row works on host copies
 * of the device's blocks. */
typedef struct turbo_kv_codec_device {
  uint32_t struct_size;
  uint32_t reserved;
  /* [engine] Write row r of `rows` ([max_rows][row_stride], all heads) at slot[r] of its sequence's open (or only) form. */
  turbo_status (*append)(void* self, turbo_stream* stream, const turbo_device_kv* kv, const turbo_device_table* table, uint32_t max_rows,
                         const float* rows, uint64_t row_stride, turbo_error* error);
  /* [engine] Pack open block open_id into block_id, in n parts of one side, which differ in their addresses and layers alone;
   * null when open is packed. */
  turbo_status (*pack)(void* self, turbo_stream* stream, const turbo_device_kv* kv, uint32_t n, int32_t open_id, int32_t block_id,
                       turbo_error* error);
  /* [engine] Copy one row of the open (or only) form, in n parts as of pack: from block src_id to block dst_id of that form. */
  turbo_status (*move_row)(void* self, turbo_stream* stream, const turbo_device_kv* kv, uint32_t n, int32_t src_id, uint32_t src_row,
                           int32_t dst_id, uint32_t dst_row, turbo_error* error);
  /* K side. [load] TURBO_OK: attend takes these arguments with values of the codec with this fingerprint (addresses may be
   * null); TURBO_UNSUPPORTED: scores and accumulate are used. */
  turbo_status (*check)(void* self, const turbo_device_attend* args, uint64_t v_fingerprint, turbo_error* error);
  uint64_t (*workspace_bytes)(void* self, const turbo_device_attend* args, uint64_t v_fingerprint); /* [load] */
  turbo_status (*attend)(void* self, turbo_stream* stream, const turbo_device_attend* args, uint64_t v_fingerprint, turbo_error* error); /* [engine] */
  /* K side. [engine] scores[(r * n_heads + h) * score_stride + position] = scale * <q, key>, for all keys of each row, in
   * chunks [chunk_begin, chunk_begin + n_chunks); q as it is. score column 0 is position chunk_begin * 256. */
  turbo_status (*scores)(void* self, turbo_stream* stream, const turbo_device_attend* args, uint32_t chunk_begin, uint32_t n_chunks,
                         float* scores, uint64_t score_stride, turbo_error* error);
  /* V side. [engine] partials[((r * n_heads + h) * n_chunks + chunk) * partial_stride + 2 ..] = the chunk's weighted values
   * in the output's own basis; weights as scores were laid out. Entries 0 and 1 (max, sum) are the pack's. */
  turbo_status (*accumulate)(void* self, turbo_stream* stream, const turbo_device_attend* args, uint32_t chunk_begin, uint32_t n_chunks,
                             const float* weights, uint64_t weight_stride, float* partials, uint64_t partial_stride, turbo_error* error);
} turbo_kv_codec_device;

#ifdef __cplusplus
}
#endif
#endif
