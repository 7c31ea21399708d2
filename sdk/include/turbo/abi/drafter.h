/* drafter: proposes tokens; the host verifies them. A drafter that is slow, wrong or broken costs speed,
 * never a token and never a request.
 *
 * Every draft is a tree. Node i has a token and a parent: -1 for the root (the last committed token, which
 * is not in the arrays) or an index smaller than i. Siblings must be distinct. A chain has parents
 * -1, 0, 1, .... Draft lengths given to a drafter count the root, so max_slots = 5 allows 4 nodes.
 * Drafts must not depend on the random numbers of sampling: a drafter never sees them.
 *
 * The [engine] calls run on the thread that serves every request, and nothing can break one off: work that takes longer
 * than tens of microseconds belongs on a thread of the drafter's own, with TURBO_PENDING until it is done. A status other
 * than TURBO_OK and TURBO_PENDING and a malformed tree are faults; after 16 in a row, or after 16 rounds in a row whose
 * calls took over 20 ms together (but for drafters that run programs), the drafter is not asked again. */
#ifndef TURBO_ABI_DRAFTER_H
#define TURBO_ABI_DRAFTER_H

#include <turbo/abi/base.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TURBO_DRAFTER_1 "turbo.drafter/1"

#define TURBO_MAX_TAPS 8u

typedef struct turbo_drafter_needs {
  uint32_t struct_size;
  uint32_t max_slots;                /* most slots it can use, root included, 2..64 */
  uint32_t n_taps;                   /* hidden states it wants, 0..TURBO_MAX_TAPS */
  int32_t tap_layers[TURBO_MAX_TAPS]; /* residual leaving layer i; n_layers means after the final norm */
  uint32_t runs_programs;            /* 1: uses turbo.host.program on the target's tier */
  uint32_t wants_prompt;             /* 1: observe is called for prompt tokens too */
} turbo_drafter_needs;

/* What became final in one step: new tokens in order, and hidden states of the positions computed for them.
 * After the prompt (if wanted) and after each step. The newest token has no hidden state yet: its position is
 * computed by the next step. */
typedef struct turbo_observation {
  uint32_t struct_size;
  uint32_t n_tokens;
  const int32_t* tokens;
  uint64_t position;       /* absolute position of tokens[0] */
  uint32_t n_accepted;     /* draft nodes accepted of the last proposal */
  uint32_t n_taps;
  const turbo_view* taps;  /* per tap: {rows, n_embd}; borrowed until the next target run */
  uint64_t tap_position;   /* absolute position of tap_rows[0] */
  uint32_t n_tap_rows;     /* hidden states of positions tap_position, tap_position + 1, ... */
  uint32_t reserved;
  const int32_t* tap_rows; /* row of each position in every tap view */
} turbo_observation;

typedef struct turbo_proposal {
  uint32_t struct_size;
  uint32_t sequence;    /* as given to open */
  uint32_t max_slots;   /* most slots wanted now, root included */
  uint32_t n;           /* out: nodes written, <= max_slots - 1; 0 = no draft */
  int32_t* tokens;      /* out, capacity max_slots - 1 */
  int32_t* parents;     /* out */
  float* probabilities; /* out, may be left untouched; null allowed */
  uint64_t deadline_ns; /* host clock: when work in the background should have an answer. A drafter that runs programs
                           works on the engine thread itself, so it has none (UINT64_MAX); how long it takes is measured
                           and weighed against what its drafts gain when max_slots is chosen */
} turbo_proposal;

/* The least number of known tokens of a hypothesis, unless the text is shorter. */
#define TURBO_AHEAD_TOKENS 256u

/* A text that a sequence may turn into: its newest tokens, the last n_assumed of which are not committed. */
typedef struct turbo_hypothesis {
  uint32_t struct_size;
  uint32_t n_tokens;       /* TURBO_AHEAD_TOKENS known ones or all there are, and the assumed ones */
  const int32_t* tokens;
  uint64_t position;       /* absolute position of tokens[0] */
  uint32_t n_assumed;
  uint32_t reserved;
} turbo_hypothesis;

#define TURBO_PENDING 100 /* poll: not ready yet, no error */

typedef struct turbo_drafter {
  uint32_t struct_size;
  uint32_t reserved;
  turbo_status (*needs)(void* self, turbo_drafter_needs* needs, turbo_error* error); /* [load] */
  turbo_status (*open)(void* self, uint32_t sequence, turbo_error* error);           /* [engine] */
  void (*close)(void* self, uint32_t sequence);                                      /* [engine] */
  turbo_status (*observe)(void* self, uint32_t sequence, const turbo_observation* observation, turbo_error* error); /* [engine] */
  /* [engine] Start work on proposals and return at once; null: all work is done in poll. The arrays stay
   * valid until poll has answered for them or cancel was called. */
  turbo_status (*begin)(void* self, turbo_proposal* proposals, uint32_t n, turbo_error* error);
  /* [engine] Fill the proposals, or TURBO_PENDING. Never waits for another thread. */
  turbo_status (*poll)(void* self, turbo_proposal* proposals, uint32_t n, turbo_error* error);
  void (*cancel)(void* self); /* [engine] forget started proposals; null allowed */
  /* [engine] Optional state of a sequence to and from bytes; null: not supported. save: *bytes is the capacity of
   * dst going in and the size needed coming out; TURBO_RESOURCE_EXHAUSTED when dst (null allowed) is too small. */
  turbo_status (*save)(void* self, uint32_t sequence, void* dst, uint64_t* bytes, turbo_error* error);
  turbo_status (*restore)(void* self, uint32_t sequence, const void* src, uint64_t bytes, turbo_error* error);
  /* [worker] Optional: what it would propose if a sequence stood at `text`. Changes no proposal, now or later. Called by one
   * thread at a time, which may run while the engine thread is in any other function of this table, so the sequence may be
   * further by now, or closed, or not open yet. Null, or TURBO_UNSUPPORTED, whatever the text: it cannot. */
  turbo_status (*ahead)(void* self, const turbo_hypothesis* text, turbo_proposal* proposal, turbo_error* error);
} turbo_drafter;

#ifdef __cplusplus
}
#endif
#endif
