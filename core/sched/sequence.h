// A request as the scheduler sees it: tokens wanted versus tokens computed. Owned by the engine thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kv/cache.h"

namespace turbo::sched {

/// One counter drives everything: positions [0, computed) are cached; a sequence wants rows for
/// [computed, tokens.size()). Prefill, chunked prefill, prefix hits, decoding and going on after a preemption are all
/// "compute the next n wanted rows".
struct Sequence {
  uint64_t id = 0;                 // unique for the engine's life, growing with arrival
  int32_t priority = 0;            // higher is served first; rises with waiting
  uint64_t client = 0;             // whose request it is, for fairness
  std::vector<int32_t> tokens;     // prompt, then generated
  uint32_t n_prompt = 0;
  uint32_t computed = 0;           // positions whose K and V are cached and final
  uint32_t max_tokens_total = 0;   // prompt + most generated; bounds KV use
  bool generates = true;           // false: prompt only (scoring, max_tokens 0)
  bool scores_prompt = false;      // every prompt row gives logits
  uint32_t n_draft = 0;            // draft nodes to verify in the next step
  int32_t next_rise = 1;           // of its priority, see WaitingQueue
  uint32_t passed_over = 0;        // admissions (waiting) or steps (running) that served others instead
  bool preempted = false;          // waits with work already done
  bool shares = true;              // takes blocks from the prefix cache and leaves its own there
  std::string salt;                // only equal salts share
  kv::SequenceBlocks blocks;

  uint32_t pending() const { return static_cast<uint32_t>(tokens.size()) - computed; }
  bool decoding() const { return pending() == 1 && tokens.size() >= n_prompt; }
  /// Most positions it may take from the prefix cache: the last token's row must run, and so must scored rows.
  uint32_t adoptable() const { return scores_prompt ? 0 : static_cast<uint32_t>(tokens.size()) - 1; }
};

/// True when `a` keeps its blocks rather than `b`: higher priority, then earlier arrival.
inline bool outranks(const Sequence& a, const Sequence& b) {
  return a.priority != b.priority ? a.priority > b.priority : a.id < b.id;
}

}  // namespace turbo::sched
