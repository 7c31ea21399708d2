// Sampler "standard" of the hip tier: kernels look at the logits, the CPU sampler's code decides from what they found.
//
// Greedy rows of which only the id is wanted: one launch. Other rows: edits, largest value, mass and the head of the order
// are found on the device, by three launches; a row that these do not decide is copied. Results land in host memory. One
// wait a call, and one more for rows that turned out undecided. Engine thread.
#pragma once

#include "device.h"
#include "worklist.h"

#include <turbo/sampler.hpp>

#include <memory>
#include <optional>
#include <vector>

namespace turbo::sample_standard {

/// Rows answered so far, by way. For metrics and tests.
struct WayCounts {
  uint64_t plain = 0, found = 0, whole = 0, undecided = 0;
};

class DeviceSampler {
 public:
  /// `vocab` 0: not known yet. Throws Failure.
  DeviceSampler(const turbo_device* device, uint32_t vocab);

  /// Throws Failure when the device fails; then no row counts, and the next call starts anew.
  void sample(const turbo_sample& args);
  const WayCounts& counts() const { return counts_; }

 private:
  // Rows of one round of launches.
  struct Round {
    size_t begin, end;  // of plans_
    std::vector<uint32_t> whole;
  };
  void plan(const turbo_sample& args);
  void make_room(const turbo_sample& args);
  bool resize(uint32_t vocab, uint32_t rows, uint32_t works, uint32_t whole);
  void clean_scratch();
  void run_plain(const turbo_sample& args, uint32_t first, uint32_t n);
  double mass_of(uint32_t view, uint32_t vocab) const;
  void run_round(const turbo_sample& args, const Round& round);
  void enqueue_works(const turbo_sample& args);
  void copy_rows(const turbo_sample& args, const uint32_t* rows, uint32_t n);
  void answer_copied(const turbo_sample& args, const uint32_t* rows, uint32_t n);
  bool answer_found(const turbo_sample& args, const Plan& plan);
  SampleAnswer answer_of(const turbo_sample& args, uint32_t row) const;
  void finish(const turbo_sample& args, uint32_t row, const SampleAnswer& answer) const;

  Kernels kernels_;

  // What the buffers hold at once.
  uint32_t vocab_ = 0, n_rows_ = 0, n_works_ = 0, n_whole_ = 0;
  Buffer scratch_, memory_, block_;                    // device
  Buffer host_block_, host_results_, host_rows_, host_plain_;  // pinned
  bool dirty_ = true;
  // Offsets.
  uint64_t edited_ = 0, found_ = 0, cleared_ = 0;  // of memory_
  uint64_t works_ = 0, views_ = 0, edits_ = 0, biases_ = 0, masks_ = 0;
  uint64_t work_found_ = 0, view_found_ = 0, sums_ = 0, keys_ = 0, model_logits_ = 0;  // of host_results_

  std::vector<Plan> plans_;
  Worklist list_;
  Round round_;
  std::vector<uint32_t> undecided_;
  Distribution distribution_;
  WayCounts counts_;
};

}  // namespace turbo::sample_standard
