// Step kernels: many launches of a recorded step as one, whose blocks hand over by mail (turbo/kernel/gpu/step.hpp).
//
// A plan is recorded once its launches are known. Those that a step kernel takes are replaced by it; the rest stay. When a
// step's blocks waited in vain, the kernel says so in pinned memory, the step is taken back, and plans go on without step
// kernels.
// [load] to create; the rest is [engine].
#pragma once

#include "memory.h"
#include "step_list.h"

#include <map>
#include <memory>

namespace turbo::arch_rdna2 {

static_assert(gpu::kTagWord == kCountsTag);

/// Memory of a plan's mail, which recorded steps share as far as it is large enough, and the number of the plan's last step.
struct Mailroom {
  std::vector<hip::DeviceMemory> memory;
  uint32_t tag = 0;
  bool begun = false;
};

/// The recorded form of a list of launches.
struct FusedStep {
  struct Part {
    size_t first, end;  // launches; of one step kernel
    turbo_kernel* kernel;
    uint32_t shared_bytes;
    gpu::StepArgs args;
  };
  std::vector<Part> parts;
  hip::DeviceMemory stages;
  bool empty() const { return parts.empty(); }
};

/// What tests do to steps, from TURBO_HIP_STEP_TRIAL in the environment:
///   delays=SEED       blocks wait here and there
///   stop=BLOCK,STAGE,STEP  a block ends there from that step on, and the others have little patience
///   tag=N             numbers of steps begin at N
///   stale             the number of a step is always the same, and blocks wait here and there
struct StepTrial {
  gpu::StepTrial blocks{};
  uint32_t first_tag = 1;
  bool stale = false;
};
/// Throws Failure on anything else.
StepTrial step_trial();

class StepKernels : public Kernels {
 public:
  /// Null where none are built.
  static std::unique_ptr<StepKernels> create(hip::Device& device, const StepTrial& trial);

  /// What of the list step kernels take; mail is made when the plan has none. Waits.
  FusedStep fuse(std::span<const hip::Enqueued> launches, const uint32_t* counts, Mailroom& mail, Staging& staging) const;
  /// All of the list, with the parts in their places.
  void enqueue(const FusedStep& fused, std::span<const hip::Enqueued> launches, turbo_stream* stream) const;
  /// The number of the next step, 1 .. kLastTag; before numbers begin anew mail is emptied, on the stream.
  uint32_t next_tag(Mailroom& mail) const;

  /// TURBO_HIP_STEP_MOMENTS=file in the environment: when stages of the last step began, had their input and ended in every
  /// block ([stage][block][kStepMoments] of u64), written once the pack goes.
  void write_moments(Staging& staging) const;

  /// Whether a step was in vain since forbid() or the start. After the stream was waited for.
  bool stopped() const { return *static_cast<const volatile uint32_t*>(report_.get<uint32_t>()) != 0; }
  /// No more step kernels from here on.
  void forbid();
  bool allowed() const { return allowed_; }

 private:
  StepKernels(hip::Device& device, const turbo_code_object* objects, uint32_t n, const StepTrial& trial);
  uint8_t* mail_of(Mailroom& mail, uint64_t bytes) const;
  void empty(const hip::DeviceMemory& memory) const;
  uint64_t* watch(uint64_t n_stages) const;
  uint64_t moments_of_stage() const;
  turbo_kernel* kernel_for(const StageRun& run, uint32_t& rows) const;

  hip::Device& owner_;
  std::map<std::string, turbo_kernel*> kernels_;  // by name
  hip::DeviceMemory stopped_;                     // on the device
  hip::DeviceMemory report_;                      // pinned
  std::string moments_path_;
  mutable std::vector<hip::DeviceMemory> moments_;  // recorded steps know their addresses
  StepTrial trial_;
  bool allowed_ = true;
};

}  // namespace turbo::arch_rdna2
