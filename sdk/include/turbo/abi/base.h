/* turbo ABI: types every other header uses.
 *
 * Rules of the whole ABI
 *  - C types only, fixed width. No bool, enum types, bit-fields, long, C++ types or exceptions cross it.
 *  - The first member of every struct that crosses is `struct_size`, set by its creator to the size it was
 *    compiled with. Members are only ever appended; a reader checks struct_size before reading a newer one.
 *    An array of such structs is strided by the struct_size of its first element.
 *  - Handles are opaque. Whoever creates an object destroys it. Pointers passed to a call are borrowed for
 *    that call unless the declaration says otherwise.
 *  - Text is UTF-8. `const char*` is null-terminated. Static strings live until the library unloads.
 *  - Every fallible call returns a turbo_status and may fill `error` (null allowed, caller owns it).
 *  - Nothing throws, aborts, exits, prints or installs signal handlers.
 *  - Thread tags: [load] one thread, at start and stop. [engine] one call at a time per instance, may move
 *    between OS threads, no blocking I/O, no unbounded allocation. [worker] the plugin's own threads.
 *    [team] several threads of the arch pack's team at once, on disjoint ranges, no allocation, no locks.
 *    [any] may be called from any thread at any time.
 */
#ifndef TURBO_ABI_BASE_H
#define TURBO_ABI_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Major is part of the meaning of the query symbol: another major is refused. Minor grows by appended
 * members and new ids. Headers under abi/draft/ are not covered until they leave draft. */
#define TURBO_ABI_MAJOR 1u
#define TURBO_ABI_MINOR 0u

#if defined(__GNUC__)
#define TURBO_ABI_EXPORT __attribute__((visibility("default")))
#else
#define TURBO_ABI_EXPORT
#endif

typedef int32_t turbo_status;
#define TURBO_OK 0
#define TURBO_INVALID_ARGUMENT 1
#define TURBO_UNSUPPORTED 2
#define TURBO_NOT_FOUND 3
#define TURBO_RESOURCE_EXHAUSTED 4
#define TURBO_CORRUPT_INPUT 5
#define TURBO_CANCELLED 6
#define TURBO_DEVICE_LOST 7
#define TURBO_INTERNAL 8

/* Filled by a failed call: message is "WHAT: WHY", hint is "WHAT TO DO" or empty; both null-terminated,
 * cut when too long. */
typedef struct turbo_error {
  uint32_t struct_size;
  turbo_status code;
  char message[512];
  char hint[256];
} turbo_error;

/* Compute tiers, in rising order of preference. */
#define TURBO_TIER_CPU 1u
#define TURBO_TIER_GENERIC 2u
#define TURBO_TIER_HIP 3u

/* Element and weight types are numbered as in GGUF files. Other GGUF numbers may appear wherever a weight
 * format announces them. */
#define TURBO_TYPE_F32 0u
#define TURBO_TYPE_F16 1u
#define TURBO_TYPE_Q4_0 2u
#define TURBO_TYPE_Q8_0 8u
#define TURBO_TYPE_I8 24u
#define TURBO_TYPE_I16 25u
#define TURBO_TYPE_I32 26u
#define TURBO_TYPE_I64 27u
#define TURBO_TYPE_F64 28u
#define TURBO_TYPE_BF16 30u
#define TURBO_TYPE_Q1_0 41u

/* Where memory lies. */
#define TURBO_MEMORY_HOST 0u
#define TURBO_MEMORY_PINNED 1u
#define TURBO_MEMORY_DEVICE 2u

/* A borrowed dense buffer: row-major, innermost dimension last, strides in bytes. */
typedef struct turbo_view {
  uint32_t struct_size;
  uint32_t type;        /* TURBO_TYPE_* */
  void* data;           /* host or device address, see memory */
  uint64_t bytes;       /* granted range from data */
  uint32_t rank;        /* used entries of shape and stride */
  uint32_t memory;      /* TURBO_MEMORY_* */
  int32_t device;       /* device index, -1 for host */
  uint32_t reserved;
  uint64_t shape[4];
  uint64_t stride[4];
} turbo_view;

#ifdef __cplusplus
}
#endif
#endif
