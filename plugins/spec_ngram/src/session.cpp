#include "session.h"

namespace turbo::spec_ngram {
namespace {

// Texts of at least this many tokens go to the worker.
constexpr size_t kLong = 128;
// Each token ends max_depth n-grams, and learning it alone walks all their beginnings again: some 170 nodes that the model's
// weights have driven out of the caches. Sixteen at once walk a sixth of that each. Until then a sequence's own repeats
// know them.
constexpr size_t kBatch = 16;
constexpr size_t kAtOnce = 16;         // most that a draft waits for
constexpr size_t kMostWaiting = 2048;  // more than that is learnt though no draft is wanted
constexpr size_t kLeastRepeats = 64, kMostRepeats = 4096;
constexpr size_t kTrim = 8192;

}  // namespace

void Session::observe(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  if (settings_.suffix) {
    // Up to 1 us each. A step that brought a chunk of a prompt took long enough to hide it all.
    const size_t n = std::min(tokens_.size() - n_repeats_, std::clamp(4 * tokens.size(), kLeastRepeats, kMostRepeats));
    repeats_.push(std::span(tokens_).subspan(n_repeats_, n));
    n_repeats_ += n;
  } else {
    n_repeats_ = tokens_.size();
  }
}

void Session::learn(Learner& learner, KnownPrefixes& known, bool skip_known, LearnWhen when) {
  skipping_ = skipping_ && skip_known;
  if (skipping_) skip(known);
  const size_t waiting = n_waiting();
  size_t least = kMostWaiting;
  if (when == LearnWhen::ended || !settings_.suffix) least = 1;  // without repeats nothing else knows these tokens
  else if (when == LearnWhen::asked) least = n_learnt_ == 0 ? 1 : kBatch;
  if (waiting > 0) {
    const size_t n_context = std::min<size_t>(n_learnt_, settings_.max_depth - 1);
    const std::span<const int32_t> text = std::span(tokens_).subspan(n_learnt_ - n_context);
    const size_t n = when == LearnWhen::ended ? waiting : std::min(waiting, settings_.suffix ? kAtOnce : 4 * kAtOnce);
    if (waiting >= kLong && learner.later({text.begin(), text.end()}, n_context))
      n_learnt_ += waiting;
    else if (waiting >= least && learner.now(text.first(n_context), text.subspan(n_context, n)))
      n_learnt_ += n;
  }
  hash(known);
  trim();
}

void Session::skip(const KnownPrefixes& known) {
  while (n_learnt_ == n_hashed_ && n_waiting() >= KnownPrefixes::kBlock) {
    const uint64_t next = KnownPrefixes::next(hash_, std::span(tokens_).subspan(n_hashed_, KnownPrefixes::kBlock));
    if (!known.contains(next)) {
      skipping_ = false;
      return;
    }
    hash_ = next;
    n_hashed_ += KnownPrefixes::kBlock;
    n_learnt_ = n_hashed_;
  }
  if (n_learnt_ != n_hashed_) skipping_ = false;
}

void Session::hash(KnownPrefixes& known) {
  for (; n_hashed_ + KnownPrefixes::kBlock <= n_learnt_; n_hashed_ += KnownPrefixes::kBlock) {
    hash_ = KnownPrefixes::next(hash_, std::span(tokens_).subspan(n_hashed_, KnownPrefixes::kBlock));
    known.add(hash_);
  }
}

void Session::trim() {
  const size_t done = std::min({n_learnt_, n_repeats_, n_hashed_});
  if (done < kTrim + settings_.max_depth) return;
  const size_t gone = done - settings_.max_depth;
  tokens_.erase(tokens_.begin(), tokens_.begin() + static_cast<std::ptrdiff_t>(gone));
  n_learnt_ -= gone;
  n_repeats_ -= gone;
  n_hashed_ -= gone;
}

}  // namespace turbo::spec_ngram
