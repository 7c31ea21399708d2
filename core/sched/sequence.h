// A request as the scheduler sees it: tokens wanted versus tokens computed. Owned by the engine thread.
#pragma once

#include <cstdint>
#include <vector>

#include "kv/cache.h"

namespace turbo::sched {

/// One counter drives everything: positions [0, computed) are cached; a sequence wants rows for
/// [computed, tokens.size()). Prefill, chunked prefill and decoding are all "compute the next n wanted rows".
struct Sequence {
  uint64_t id = 0;                 // unique for the engine's life
  std::vector<int32_t> tokens;     // prompt, then generated
  uint32_t n_prompt = 0;
  uint32_t computed = 0;           // positions whose K and V are cached and final
  uint32_t max_tokens_total = 0;   // prompt + most generated; bounds KV use
  bool generates = true;           // false: prompt only (scoring, max_tokens 0)
  bool scores_prompt = false;      // every prompt row gives logits
  uint32_t n_draft = 0;            // draft nodes to verify in the next step
  kv::SequenceBlocks blocks;

  uint32_t pending() const { return static_cast<uint32_t>(tokens.size()) - computed; }
  bool decoding() const { return pending() == 1 && tokens.size() >= n_prompt; }
};

}  // namespace turbo::sched
