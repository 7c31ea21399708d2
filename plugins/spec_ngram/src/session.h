// One sequence: its last tokens, what of them is not learnt yet, and its own repeats. Engine thread.
#pragma once

#include <turbo/draft/suffix.hpp>

#include "learner.h"

namespace turbo::spec_ngram {

struct SessionSettings {
  uint32_t max_depth = 18;
  bool suffix = true;
};

/// Prefixes of texts that were learnt already, by hash: a text told again (the next turn of a chat, a sequence resumed
/// after a preemption) is not counted again.
class KnownPrefixes {
 public:
  static constexpr size_t kBlock = 32;  // tokens between two hashes

  static uint64_t next(uint64_t hash, std::span<const int32_t> block) {
    for (const int32_t token : block) {
      hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return hash | 1;  // never that of an empty slot
  }
  bool contains(uint64_t hash) const { return slots_[slot(hash)] == hash; }
  void add(uint64_t hash) { slots_[slot(hash)] = hash; }

 private:
  size_t slot(uint64_t hash) const { return (hash >> 32) & (slots_.size() - 1); }
  std::vector<uint64_t> slots_ = std::vector<uint64_t>(1 << 15);  // the newer hash of a slot wins
};

/// On what occasion: a token came (then little is done), a draft is wanted, or no more tokens will come.
enum class LearnWhen { heard, asked, ended };

class Session {
 public:
  explicit Session(const SessionSettings& settings) : settings_(settings), repeats_(kRepeatTokens) {}

  void observe(std::span<const int32_t> tokens);
  /// Puts what is waiting into the corpus: all of it if a worker takes it or the text has ended, else some when a draft is
  /// wanted, in batches. A text whose drafts do not pay is learnt when it ends, and not while it is made. `skip_known`: leave
  /// out the beginning that is known.
  void learn(Learner& learner, KnownPrefixes& known, bool skip_known, LearnWhen when);

  /// The tokens that a draft continues.
  std::span<const int32_t> context() const {
    return std::span(tokens_).last(std::min<size_t>(tokens_.size(), settings_.max_depth));
  }
  /// Tokens of the longest suffix that occurred before in this sequence; 0 while its repeats lag behind its tokens.
  uint32_t repeat_length() const { return n_repeats_ == tokens_.size() && settings_.suffix ? repeats_.length() : 0; }
  void repeat_draft(uint32_t max_nodes, draft::DraftNodes& out) const { repeats_.draft(max_nodes, out); }
  size_t n_waiting() const { return tokens_.size() - n_learnt_; }
  uint64_t bytes() const { return repeats_.bytes() + tokens_.capacity() * sizeof(int32_t); }

 private:
  static constexpr uint32_t kRepeatTokens = 1 << 16;

  void skip(const KnownPrefixes& known);
  void hash(KnownPrefixes& known);
  void trim();

  const SessionSettings settings_;
  std::vector<int32_t> tokens_;  // the newest; older ones go once they are learnt
  size_t n_learnt_ = 0, n_repeats_ = 0, n_hashed_ = 0;
  uint64_t hash_ = 0;  // of everything before n_hashed_
  bool skipping_ = true;
  draft::RepeatFinder repeats_;
};

}  // namespace turbo::spec_ngram
