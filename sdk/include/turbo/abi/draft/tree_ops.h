/* Integer work of tree verification, per tier (draft): building a tree from a drafter's candidate pool, its links from a
 * mask, the greedy walk, and the coin walk of other engines.
 *
 * turbo's own verification needs none of the walks: it draws the target's token at each node and follows the child that
 * equals it. They are here for kernels that keep everything on a device, and to compare with others.
 *
 * B requests of K slots each, slot 0 the root, arrays row-major. Flat row r = b * K + slot. All ops are pure functions of
 * their input, results of a request do not depend on the others, and malformed trees end in a status, never out of
 * bounds. [any thread] */
#ifndef TURBO_ABI_DRAFT_TREE_OPS_H
#define TURBO_ABI_DRAFT_TREE_OPS_H

#include <turbo/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_TREE_OPS_DRAFT "turbo.tree_ops/draft1"

#define TURBO_TREE_MAX_SLOTS 64u

/* Layout of the mask that build writes; the caller fills it with 1 (full) or 0 (the others) before. */
enum {
  TURBO_TREE_MASK_FULL = 0,   /* bytes; request b: K rows of prefix_len[b] + K, requests one behind the other */
  TURBO_TREE_MASK_SLOTS = 1,  /* bytes; [B][K][K] */
  TURBO_TREE_MASK_PACKED = 2  /* one little-endian word a slot of 1, 2, 4 or 8 bytes for K <= 8, 16, 32, 64: bit i = slot i */
};

/* A pool of t + (d - 1) t t candidates from d steps of t branches. selected names the K - 1 best, rising; candidate s with
 * s / t = 0 is a child of the root, else its parent is candidate parent_list[s / t]. */
typedef struct turbo_tree_build {
  uint32_t struct_size;
  uint32_t n_requests;         /* B */
  uint32_t n_slots;            /* K, 1 .. 64 */
  uint32_t topk;               /* t */
  uint32_t depth;              /* d */
  uint32_t mask_mode;
  const int64_t* parent_list;  /* [B][t (d - 1) + 1]; ignored when d is 1 */
  const int64_t* selected;     /* [B][K - 1] */
  const int64_t* prefix_len;   /* [B] */
  void* mask;
  uint64_t mask_bytes;
  int64_t* positions;          /* [B * K] prefix_len + depth */
  int64_t* retrieve_index;     /* [B][K] flat row */
  int64_t* next_token;         /* [B][K] first child, -1 none; children in rising order */
  int64_t* next_sibling;       /* [B][K] */
  uint32_t* n_orphans;         /* [B] slots whose parent was not selected: left unlinked, below the root in the mask; may be null */
} turbo_tree_build;

/* Links of a tree given as byte masks [B][K][K], rows closed under ancestors, parents before children. A slot j > 0 that
 * sees itself alone is dead: never linked. */
typedef struct turbo_tree_links {
  uint32_t struct_size;
  uint32_t n_requests;
  uint32_t n_slots;
  uint32_t reserved;
  const uint8_t* mask;
  const int64_t* prefix_len;
  int64_t* positions;
  int64_t* retrieve_index;
  int64_t* next_token;
  int64_t* next_sibling;
} turbo_tree_links;

/* The tree and the results of a walk. accept_index has S columns: walks end after S - 1 accepted drafts. Emitted tokens of
 * request b: predicts[accept_index[b][0 .. n_accepted[b]]]. Rows off the path are not written. */
typedef struct turbo_tree_walk {
  uint32_t struct_size;
  uint32_t n_requests;
  uint32_t n_slots;
  uint32_t n_columns;             /* S, 1 .. K */
  const int64_t* candidates;      /* [B][K] token of each slot */
  const int64_t* retrieve_index;
  const int64_t* next_token;
  const int64_t* next_sibling;
  int32_t* predicts;              /* [B * K] token emitted after a flat row */
  int32_t* accept_index;          /* [B][S], filled with -1 by the caller */
  int32_t* n_accepted;            /* [B] root and last token excluded */
} turbo_tree_walk;

/* Coins of the walk below. Accepts child c of a node when coin < (probabilities of the children up to c) / threshold_acc, or
 * p(c) >= threshold_single; one coin a node. Both thresholds 1 and distinct siblings: the target's distribution, exactly. */
typedef struct turbo_tree_coins {
  uint32_t struct_size;
  uint32_t vocabulary;        /* V */
  const float* coins;         /* [B][K] in [0, 1) */
  const float* final_coin;    /* [B] */
  const float* target_probs;  /* [B][K][V] */
  float* draft_probs;         /* [B][K][V] zeros; scratch */
  float threshold_single, threshold_acc;
  uint32_t* failed;           /* [B] 1: a probability was no number or negative, nothing of the request is meant; may be null */
} turbo_tree_coins;

typedef struct turbo_tree_ops {
  uint32_t struct_size;
  uint32_t reserved;
  turbo_status (*build)(void* self, const turbo_tree_build* args, turbo_error* error);
  turbo_status (*link)(void* self, const turbo_tree_links* args, turbo_error* error);
  /* target: [B][K] the target's choice after each flat row */
  turbo_status (*verify_greedy)(void* self, const turbo_tree_walk* walk, const int64_t* target, turbo_error* error);
  turbo_status (*verify_coins)(void* self, const turbo_tree_walk* walk, const turbo_tree_coins* coins, turbo_error* error);
} turbo_tree_ops;

#ifdef __cplusplus
}
#endif
#endif
