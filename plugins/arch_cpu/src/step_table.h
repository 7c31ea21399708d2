// Step table: the pack's own arrays behind a turbo_step_table.
// [load] to create; the engine thread fills it; the check and the run are [engine].
#pragma once

#include <turbo/pack/step_check.hpp>

#include <memory>

namespace turbo::arch_cpu {

using pack::StepNeeds;
using pack::StepScratch;

struct StepMemory {
  explicit StepMemory(const turbo_step_caps& caps) {
    pack::StepArrays::check_caps(caps);
    arrays.resize(pack::StepArrays::words(caps));
    masks.resize(uint64_t{caps.logit_rows} * caps.mask_words);
  }
  std::vector<int32_t> arrays;
  std::vector<uint32_t> masks;
};

struct StepTable : private StepMemory, pack::StepArrays {
  explicit StepTable(const turbo_step_caps& caps) : StepMemory(caps), StepArrays(caps, arrays.data(), masks.data()) {}
};

}  // namespace turbo::arch_cpu
