// A row's answer from its logits: the same on every tier.
#pragma once

#include "distribution.h"

#include <turbo/kernel/random.h>

namespace turbo::sample_standard {

inline void answer_row(Distribution& distribution, const SampleRow& row, SampleAnswer& answer) {
  answer.status = distribution.prepare(row);
  if (answer.status != TURBO_OK) return;
  answer.id = distribution.draw(turbo_uniform(row.seed, row.position));
  if (answer.logprob) *answer.logprob = distribution.logprob(answer.id);
  if (!answer.top_ids.empty()) distribution.top(answer.top_ids, answer.top_logprobs);
}

/// The same from what a device found; false: the row's logits are needed, and the answer is as it was but for what the
/// next answer_row overwrites.
inline bool answer_row(Distribution& distribution, const SampleRow& row, const Found& found, SampleAnswer& answer) {
  answer.status = distribution.prepare(row, found);
  if (distribution.undecided()) return false;
  if (answer.status != TURBO_OK) return true;
  answer.id = distribution.draw(turbo_uniform(row.seed, row.position));
  if (distribution.undecided()) return false;
  if (answer.logprob) *answer.logprob = distribution.logprob(answer.id);
  if (!answer.top_ids.empty()) distribution.top(answer.top_ids, answer.top_logprobs);
  return !distribution.undecided();
}

}  // namespace turbo::sample_standard
