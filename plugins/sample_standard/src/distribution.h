// From one row of logits and the parameters of its request to the distribution that is drawn from.
//
// Order: mask and bias, penalties (repetition, frequency, presence), temperature, top-k, top-p, min-p, typical.
// README.md has the exact rules. One thread; scratch grows to the vocabulary once and is kept.
#pragma once

#include "passes.h"
#include "ranking.h"

#include <turbo/sampler.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace turbo::sample_standard {

/// Natural logarithm by a fixed sequence of operations, about 1 ulp, x > 0 finite.
double ln(double x);

/// Whether the parameters of the row's request can be served; prepare refuses the others.
bool in_range(const SampleRow& row);
bool penalised(const SampleRow& row);
constexpr float kBan = -100.0f;          // biases up to here ban
constexpr uint32_t kSeen = 0x80000000u;  // in the prompt, output or path; the other bits count output and path

/// A row whose logits lie elsewhere, as far as it was looked at there. Edited: after mask, bias and penalties.
struct Found {
  bool nan = false;
  Head model;                        // keys only when alternatives are wanted or nothing was edited
  const Head* edited = nullptr;      // null: nothing was edited
  double mass = 0;                   // weight_sum of what is drawn from; not read with top-k
  double model_mass = 0;             // weight_sum of the model's own logits at temperature 1; for log-probabilities
  float tail_weight = 1;             // no weight of what the drawn ranking's head does not hold is above; 0: all are 0
  std::span<const float> model_logits;  // of the drawn ranking's keys, one for one; when edited
  float greedy_logit = 0;            // the model's own, of the edited argmax
};

class Distribution {
 public:
  struct Entry {
    int32_t id;
    double probability;
  };

  /// TURBO_OK, or the status the row ends with. Throws std::bad_alloc.
  turbo_status prepare(const SampleRow& row);
  /// The same from what was found; undecided() may become true here and in every later call, and then no answer counts:
  /// the row's logits are needed.
  turbo_status prepare(const SampleRow& row, const Found& found);
  bool undecided() const { return undecided_; }
  /// The token at u in [0, 1) after prepare.
  int32_t draw(double u);
  /// Every token that can be drawn, in the order of the draw. The whole table: for tests.
  std::vector<Entry> table();

  /// The model's own distribution (temperature 1, nothing applied), after prepare.
  float logprob(int32_t id);
  void top(std::span<int32_t> ids, std::span<float> logprobs);

 private:
  struct Kept {
    int32_t id;
    float weight;
  };
  turbo_status choose(const SampleRow& row);
  /// Of an entry that is not known, 0, when it must be below `least` or 0; else the row is undecided.
  float weight_at(uint64_t i, float least = 0);
  float model_logit(int32_t id) const;
  float logprob_of(float logit);
  void adjust(const SampleRow& row);
  void apply_penalties(const SampleRow& row);
  void filter(const SampleRow& row);
  void keep_typical(float typical_p);
  const Kept* kept_at(uint64_t i);
  double model_mass();

  Ranking model_, adjusted_;
  Ranking* ranking_ = nullptr;  // the one that is drawn from
  std::vector<float> values_;   // logits after mask, bias and penalties
  std::vector<uint32_t> counts_;
  std::vector<int32_t> touched_;
  std::vector<Kept> kept_;
  std::vector<std::pair<double, uint32_t>> deviations_;
  const Found* found_ = nullptr;
  bool undecided_ = false;
  bool lazy_ = false;           // nothing was cut: kept_ follows the ranking as far as it is read
  double mass_ = 0;             // sum of kept weights
  double model_mass_ = 0;       // 0: not yet computed
  float temperature_ = 1;
  int32_t greedy_ = -1;         // the answer at temperature 0
  uint64_t n_ = 0;
};

}  // namespace turbo::sample_standard
