// How long a step takes by its rows: the price of verifying a draft. One thread.
//
// Measured once before serving, then followed by the steps that only decode. Weights are read once for all rows, so the
// first rows beside the first are nearly free and later ones cost arithmetic; where the bend lies depends on the machine.
// A busy machine slows steps of all sizes, of which only some are seen: so what is seen moves a common level quickly and
// the shape of the curve slowly; but a row count that was not seen for long, or never since the first measurement, may be
// wrong for long, and its newest step says more.
#pragma once

#include <cstdint>
#include <map>
#include <span>

namespace turbo::spec {

struct RowCost {
  uint32_t rows;
  double seconds;  // median
  double best;     // what a quiet machine takes
};

class StepCost {
 public:
  static constexpr uint32_t kMostRows = 64;
  static constexpr double kLevelWeight = 0.1, kShapeWeight = 0.02, kRareWeight = 0.35;  // of the newest step

  StepCost() = default;
  explicit StepCost(std::span<const RowCost> measured) {
    for (const RowCost& cost : measured) shape_[cost.rows] = {cost.best, 0};
  }

  bool known() const { return !shape_.empty(); }
  /// A step of `rows` rows took so long. More than kMostRows are ignored: they belong to prompts.
  void record(uint32_t rows, double seconds);
  /// Seconds of a step of `rows` rows: between two known row counts a straight line, beyond the last one its slope, and
  /// never less than for fewer rows. 0 when nothing is known.
  double of(uint32_t rows) const { return level_ * shape(rows); }

 private:
  double shape(uint32_t rows) const;

  struct Known {
    double seconds;
    uint64_t seen;  // number of the step
  };
  std::map<uint32_t, Known> shape_;
  uint64_t n_steps_ = 0;
  double level_ = 1;
};

}  // namespace turbo::spec
