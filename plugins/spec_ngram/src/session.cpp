#include "session.h"

namespace turbo::spec_ngram {
namespace {

// Texts of at least this many tokens go to the worker.
constexpr size_t kLong = 128;
// Each token ends max_depth n-grams, and learning it alone walks all their beginnings again: some 170 nodes that the model's
// weights have driven out of the caches. Sixteen at once walk a sixth of that each. Until then a sequence's own repeats
// know them.
constexpr size_t kBatch = 16;
// Tokens that a step learns without a worker: up to 2 us each in the corpus, up to 1 us each among the repeats. A step
// that brought a chunk of a prompt took long enough to hide it all.
constexpr size_t kMost = 4096;
constexpr size_t kLeastRepeats = 64, kMostRepeats = 4096;
constexpr size_t kTrim = 8192;

}  // namespace

void Session::learn(Learner& learner, KnownPrefixes& known, bool skip_known, size_t n_fresh, bool last) {
  if (settings_.suffix) {
    const size_t n = std::min(tokens_.size() - n_repeats_, std::clamp(4 * n_fresh, kLeastRepeats, kMostRepeats));
    repeats_.push(std::span(tokens_).subspan(n_repeats_, n));
    n_repeats_ += n;
  } else {
    n_repeats_ = tokens_.size();
  }
  skipping_ = skipping_ && skip_known;
  if (skipping_) skip(known);

  const size_t batch = !settings_.suffix || last || n_learnt_ == 0 ? 1 : kBatch;
  if (const size_t waiting = n_waiting(); waiting >= batch) {
    const size_t n_context = std::min<size_t>(n_learnt_, settings_.max_depth - 1);
    const std::span<const int32_t> text = std::span(tokens_).subspan(n_learnt_ - n_context);
    const size_t n = std::min(waiting, std::clamp(n_fresh, kBatch, kMost));
    if (waiting >= kLong && learner.later({text.begin(), text.end()}, n_context))
      n_learnt_ += waiting;
    else if (learner.now(text.first(n_context), text.subspan(n_context, n)))
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
