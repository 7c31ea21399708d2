// Step table: arrays in pinned host memory that the engine fills, and their copy on the device that kernels read.
//
// A step's copy is a kernel that reads the pinned arrays, so that it is part of the recorded graph and takes what the
// step uses. The engine may fill the table again once the step has been waited for.
// [load] to create; the rest is [engine].
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/pack/step_check.hpp>

#include "memory.h"

namespace turbo::arch_rdna2 {

struct StepMemory {
  StepMemory(const turbo_step_caps& caps, hip::Device& device);
  hip::DeviceMemory pinned, on_device;
  std::vector<uint32_t> masks;  // for the sampler, which copies them itself
};

class StepTable : private StepMemory, public pack::StepArrays {
 public:
  StepTable(const turbo_step_caps& caps, hip::Device& device);

  const turbo_device_table& on_device_table() const { return table_; }
  /// For the copy; they are constant.
  const TableArgs& args() const { return args_; }
  /// After the check of a step: what its copy shall take.
  void set_head();
  /// Number of the step for step kernels, which read it from memory of the device.
  void set_tag(uint32_t tag) { pinned.get<uint32_t>()[kHeadTag] = tag; }
  uint64_t bytes() const { return pinned.bytes() + on_device.bytes(); }

 private:
  TableArgs args_{};
  turbo_device_table table_{};
};

}  // namespace turbo::arch_rdna2
