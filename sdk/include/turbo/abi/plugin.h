/* Discovery and lifecycle.
 *
 * A plugin is one shared object that exports turbo_plugin_query and nothing else. A component is one
 * (kind, name, tier). Life of a component instance:
 *   query -> probe -> create -> start -> (work) -> stop -> destroy
 * probe may touch a device but leaves no state behind and ends within 200 ms. */
#ifndef TURBO_ABI_PLUGIN_H
#define TURBO_ABI_PLUGIN_H

#include <turbo/abi/host.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_KIND_WEIGHT_FORMAT "weight_format"
#define TURBO_KIND_KV_CODEC "kv_codec"
#define TURBO_KIND_DRAFTER "drafter"
#define TURBO_KIND_SAMPLER "sampler"
#define TURBO_KIND_ARCH_PACK "arch_pack"

/* What a component is asked about in probe: null members are unknown (listing without a model). */
typedef struct turbo_probe_facts {
  uint32_t struct_size;
  uint32_t tier;
  const turbo_model_facts* model; /* null when no model is named */
  const char* device;             /* device id of the arch pack this must work with, null for host */
} turbo_probe_facts;

typedef struct turbo_probe_result {
  uint32_t struct_size;
  int32_t score;    /* 0 = unusable here, else 1..1000, higher is better */
  char reason[256]; /* why unusable, or what was found ("avx512_vnni, 8 threads") */
} turbo_probe_result;

#define TURBO_COMPONENT_EXPERIMENTAL 1u /* the host says so when it is picked */

typedef struct turbo_component {
  uint32_t struct_size;
  uint32_t tier;    /* TURBO_TIER_* */
  const char* kind; /* TURBO_KIND_* */
  const char* name; /* [a-z0-9_]{1,32} */
  uint32_t flags;
  uint32_t reserved;
  /* JSON object: option key -> {"type": "int|float|bool|string", "default": .., "min": .., "max": .., "enum": [..],
   * "doc": ".."}; null for no options. */
  const char* option_schema;

  /* [load] */
  turbo_status (*probe)(const turbo_host* host, const turbo_probe_facts* facts, turbo_probe_result* result, turbo_error* error);
  /* [load] host outlives the instance; options come from its config service. */
  turbo_status (*create)(const turbo_host* host, void** instance, turbo_error* error);
  turbo_status (*start)(void* instance, turbo_error* error); /* [load] null allowed */
  void (*stop)(void* instance);                              /* [load] null allowed */
  void (*destroy)(void* instance);                           /* [load] */
  /* [any] Function table of an interface id ("turbo.drafter/1") or null. Every call of the table takes the
   * instance first. */
  const void* (*query_interface)(const char* id);
} turbo_component;

typedef struct turbo_plugin {
  uint32_t struct_size;
  uint32_t abi_major;      /* compiled against */
  uint32_t abi_minor;      /* compiled against */
  uint32_t abi_minor_host; /* oldest host minor accepted */
  const char* id;          /* reverse DNS, equal to the manifest's */
  const char* name;
  const char* version;
  const char* vendor;
  const char* license;
  const char* build;       /* compiler and flags, free text */
  uint32_t n_components;
  uint32_t component_bytes; /* stride of components, sizeof(turbo_component) as compiled */
  const turbo_component* components;
} turbo_plugin;

/* The one exported function. Pure: no threads, no device calls, no allocation. Null when the plugin cannot
 * serve this host version. */
typedef const turbo_plugin* (*turbo_plugin_query_fn)(uint32_t host_abi_major, uint32_t host_abi_minor);
#define TURBO_PLUGIN_QUERY_SYMBOL "turbo_plugin_query"

#ifdef __cplusplus
}
#endif
#endif
