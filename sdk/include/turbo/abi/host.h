/* What the host offers a plugin. Services are found by string id; an unknown id gives null, never a crash.
 * A service table lives as long as the host. Its `ctx` is the first argument of each of its calls. */
#ifndef TURBO_ABI_HOST_H
#define TURBO_ABI_HOST_H

#include <turbo/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct turbo_host {
  uint32_t struct_size;
  uint32_t abi_major;
  uint32_t abi_minor;
  uint32_t reserved;
  void* ctx;
  /* [any] The table of a service for the component that this host was handed to, or null. */
  const void* (*query_service)(const struct turbo_host* host, const char* id);
} turbo_host;

#define TURBO_LOG_TRACE 0u
#define TURBO_LOG_DEBUG 1u
#define TURBO_LOG_INFO 2u
#define TURBO_LOG_WARN 3u
#define TURBO_LOG_ERROR 4u

#define TURBO_HOST_LOG "turbo.host.log/1"
typedef struct turbo_host_log {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  /* [any] One line; the host adds time and component name. */
  void (*write)(void* ctx, uint32_t level, const char* message);
} turbo_host_log;

#define TURBO_HOST_ALLOC "turbo.host.alloc/1"
typedef struct turbo_host_alloc {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  /* [load][engine] Tagged memory; the host adds up tags for its memory report ("weights", "kv", "workspace",
   * "graph", "drafter", ...). alignment is a power of two up to 2 MiB. Null with *error filled when refused.
   * TURBO_MEMORY_DEVICE is offered only to components of a tier whose arch pack provides it. */
  void* (*allocate)(void* ctx, uint32_t memory, uint64_t bytes, uint64_t alignment, const char* tag, turbo_error* error);
  void (*release)(void* ctx, void* pointer);
  /* [load][engine] Count bytes under a tag that the component holds by other means (an arch pack's device memory): more,
   * or fewer when negative. Never below what the component has counted under that memory and tag before. */
  void (*account)(void* ctx, uint32_t memory, const char* tag, int64_t bytes);
} turbo_host_alloc;

#define TURBO_HOST_CONFIG "turbo.host.config/1"
/* Options of this component from the profile, already checked against its option schema; keys left out by
 * the user give the schema's default. */
typedef struct turbo_host_config {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  /* [any] TURBO_NOT_FOUND when the key has neither value nor default; TURBO_INVALID_ARGUMENT on another type. */
  turbo_status (*get_string)(void* ctx, const char* key, const char** value);
  turbo_status (*get_i64)(void* ctx, const char* key, int64_t* value);
  turbo_status (*get_f64)(void* ctx, const char* key, double* value);
  turbo_status (*get_bool)(void* ctx, const char* key, uint32_t* value);
} turbo_host_config;

#define TURBO_HOST_CLOCK "turbo.host.clock/1"
typedef struct turbo_host_clock {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  uint64_t (*now_ns)(void* ctx); /* [any] monotonic; tests inject it */
} turbo_host_clock;

#define TURBO_HOST_THREADS "turbo.host.threads/1"
/* Named workers. The host joins every worker after the component's stop(), so a worker must end when asked. */
typedef struct turbo_host_threads {
  uint32_t struct_size;
  uint32_t compute_threads; /* threads the profile grants for compute; at least 1 */
  void* ctx;
  /* [load] The worker runs fn(argument) and ends when fn returns. */
  turbo_status (*spawn)(void* ctx, const char* name, void (*fn)(void* argument), void* argument, turbo_error* error);
  uint32_t (*stopping)(void* ctx); /* [any] 1 once workers must end */
} turbo_host_threads;

#define TURBO_HOST_METRICS "turbo.host.metrics/1"
typedef struct turbo_host_metrics {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  /* [any] Names match [a-z_]+; the host adds prefix and labels. */
  void (*counter_add)(void* ctx, const char* name, double value);
  void (*gauge_set)(void* ctx, const char* name, double value);
} turbo_host_metrics;

#define TURBO_HOST_FILE "turbo.host.file/1"
/* Bounded reads of files that the profile names for this component. */
typedef struct turbo_host_file {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  turbo_status (*size)(void* ctx, const char* path, uint64_t* bytes, turbo_error* error);                       /* [load] */
  turbo_status (*read)(void* ctx, const char* path, uint64_t offset, void* dst, uint64_t bytes, turbo_error* error); /* [load] all or error */
} turbo_host_file;

#define TURBO_HOST_THREAD_CHECK "turbo.host.thread_check/1"
typedef struct turbo_host_thread_check {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  uint32_t (*on_engine_thread)(void* ctx); /* [any] */
} turbo_host_thread_check;

/* Facts of the target model. */
typedef struct turbo_model_facts {
  uint32_t struct_size;
  uint32_t n_layers;
  const char* architecture; /* "qwen3" */
  uint32_t n_embd, n_ff, n_heads, n_kv_heads, head_dim_k, head_dim_v, vocab_size, context;
  uint64_t tokenizer_fingerprint;
} turbo_model_facts;

#define TURBO_HOST_MODEL "turbo.host.model/1"
typedef struct turbo_host_model {
  uint32_t struct_size;
  uint32_t reserved;
  void* ctx;
  const turbo_model_facts* (*facts)(void* ctx); /* [any] */
  /* [load] A tensor of the target's file by its GGUF name; view borrowed until load ends. shape is {rows, cols}. */
  turbo_status (*tensor)(void* ctx, const char* name, turbo_view* view, turbo_error* error);
  /* [any] Tokenizer. Needed size on TURBO_RESOURCE_EXHAUSTED is left in *n. */
  turbo_status (*encode)(void* ctx, const char* text, uint64_t text_bytes, int32_t* ids, uint64_t* n);
  turbo_status (*token_bytes)(void* ctx, int32_t id, const char** bytes, uint64_t* n);
} turbo_host_model;

#ifdef __cplusplus
}
#endif
#endif
