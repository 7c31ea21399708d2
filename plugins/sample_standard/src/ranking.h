// The tokens of a row in descending order of logit (ties: lower id first), sorted only as far as it is read.
// One thread. The row, or the head of one that lies elsewhere, is borrowed from reset to the last call.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace turbo::sample_standard {

struct Candidate {
  float logit;
  int32_t id;
};

/// Rising key = falling logit, then rising id. Both zeros count as +0.
uint64_t key_of(float logit, uint64_t id);
Candidate candidate_of(uint64_t key);

/// What is known of a row without its logits: its first tokens in the order, in any order here, no tie cut in two.
struct Head {
  float max = 0;
  int32_t argmax = -1;  // -1: every logit is minus infinity
  std::span<const uint64_t> keys;
  bool complete = false;  // there is nothing else above minus infinity
};

class Ranking {
 public:
  /// False when the row holds a NaN.
  bool reset(const float* x, uint64_t n);
  void reset(const Head& head);
  const float* logits() const { return x_; }
  float max() const { return max_; }
  int32_t argmax() const;  // -1 when every logit is minus infinity

  /// Entry i of the order; nothing past the last token with a logit above minus infinity.
  std::optional<Candidate> at(uint64_t i);
  /// Keep entries whose logit is at least that of entry k - 1.
  void cut(uint64_t k);
  /// Whether the order goes on past the last entry that is known.
  bool is_partial() const { return partial_; }

 private:
  void grow(uint64_t wanted);
  void gather(float threshold, std::vector<uint64_t>& keys) const;

  const float* x_ = nullptr;
  uint64_t n_ = 0;
  float max_ = 0;
  int32_t argmax_ = -1;                  // of a head
  bool complete_ = false, partial_ = false;
  bool pooled_ = false;                  // of a head: rest_ holds everything that is not in sorted_
  std::vector<float> maxima_, scratch_;  // by block
  std::vector<uint64_t> sorted_, rest_;  // keys: rising key = falling logit, then rising id; sorted_ is an exact prefix
};

}  // namespace turbo::sample_standard
