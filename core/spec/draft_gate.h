// Keeps what drafting may lose within a share of plain decoding, whatever the estimates behind it say. One thread.
//
// An account in units of the plain price of a token: drafts that emit more than their step's time would have emitted
// plainly pay in, others draw, and every token pays in a little. Without means no step drafts: estimates of acceptance that
// lag behind the text, or probes of text where nothing holds, cost that share and no more. The plain price is what all
// depends on, so a step now and then goes without a draft even where all drafts hold.
#pragma once

#include <cstdint>

#include "spec/step_cost.h"

namespace turbo::spec {

/// A step that only decodes.
struct DecodeStep {
  uint32_t rows;         // without draft nodes
  uint32_t nodes;        // draft nodes verified
  double tokens;         // emitted
  double draft_seconds;  // making the drafts
};

class DraftGate {
 public:
  static constexpr double kShare = 0.0075;             // what drafting may lose of plain decoding
  static constexpr double kMost = 8;                   // tokens in the account: at most, and at the start
  static constexpr uint32_t kFirstReference = 1, kRarestReference = 64;  // drafted steps between plain ones

  /// May the next step draft?
  bool open() const { return balance_ >= 0 && drafted_ < reference_; }
  /// `cost` has seen the step.
  void record(const DecodeStep& step, const StepCost& cost);
  double balance() const { return balance_; }

 private:
  double balance_ = kMost;
  uint32_t drafted_ = 0, reference_ = kFirstReference;
};

}  // namespace turbo::spec
