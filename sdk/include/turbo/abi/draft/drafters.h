/* Drafters over other drafters: what a drafter that the profile composes over inner ones gets from its host.
 *
 * The profile names the inner drafters; the host creates and starts them before the outer one and stops and destroys
 * them after it. An inner drafter does not know that it is one: the outer drafter is its engine, under the rules of
 * abi/drafter.h. It gets every observation, under the sequence numbers of the outer one; if one of several inner drafters
 * wants prompts, all may see them. n_accepted counts nodes of the inner drafter's own last proposal, 0 when it was not
 * asked. turbo/draft/inner_drafters.hpp does all of this. */
#ifndef TURBO_ABI_DRAFT_DRAFTERS_H
#define TURBO_ABI_DRAFT_DRAFTERS_H

#include <turbo/abi/drafter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct turbo_inner_drafter {
  uint32_t struct_size;
  uint32_t reserved;
  const char* name;           /* as the profile names it */
  const turbo_drafter* table;
  void* self;
} turbo_inner_drafter;

#define TURBO_HOST_DRAFTERS_DRAFT "turbo.host.drafters/draft1"
/* Offered only to a drafter that the profile composes over others. */
typedef struct turbo_host_drafters {
  uint32_t struct_size;
  uint32_t count; /* at least 1; those that could be opened, in the order of the profile */
  void* ctx;
  /* [load] Fills *inner up to its struct_size. What it points to lives until the outer drafter is destroyed. */
  turbo_status (*inner)(void* ctx, uint32_t index, turbo_inner_drafter* inner);
} turbo_host_drafters;

#ifdef __cplusplus
}
#endif
#endif
