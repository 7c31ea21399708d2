// What the device is asked about the rows of a call: works, views, lists, edits and masks. Engine thread; grows to the
// largest call and is kept.
#pragma once

#include "args.h"
#include "../src/distribution.h"

#include <cstdint>
#include <vector>

namespace turbo::sample_standard {

/// How a row is answered, and where what was found about it lies.
struct Plan {
  enum class Way : uint8_t { done, found, whole };
  uint32_t row = 0;
  Way way = Way::done;
  bool plain = false;  // greedy, nothing applied, nothing but the id wanted
  uint32_t work = device::kNone;
  uint32_t draw_view = device::kNone, model_view = device::kNone;
};

class Worklist {
 public:
  void clear();
  /// A row that is neither done nor whole, with what of it is wanted.
  void add(Plan& plan, const SampleRow& row, bool logprob, uint32_t n_top);

  std::vector<device::Work> works;
  std::vector<device::View> views;
  std::vector<device::Edit> edits;
  std::vector<float> biases;
  std::vector<uint32_t> masks;
  uint32_t n_edited = 0, n_lists = 0;

 private:
  void add_edits(const SampleRow& row);
  uint32_t add_view(uint32_t work, uint32_t flags, float temperature, bool list, uint32_t least);

  std::vector<uint32_t> seen_;  // by token, between calls all 0
  std::vector<uint32_t> place_;
  std::vector<int32_t> touched_;
};

/// Whether a row needs nothing but the id of its largest logit.
bool is_plain(const SampleRow& row, bool logprob, bool top);
bool is_edited(const SampleRow& row);
/// Whether a list could hardly decide the row: its logits are copied at once.
bool wants_whole(const SampleRow& row);

}  // namespace turbo::sample_standard
