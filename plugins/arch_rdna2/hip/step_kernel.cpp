#include "step_kernel.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

// On AMD there are none: what clang 19 makes of them needs more scalar registers than there are.
#if defined(TURBO_HIP_PLATFORM_NVIDIA) || defined(TURBO_HIP_PLATFORM_FIBER)
#define TURBO_STEP_KERNELS 1
extern "C" const turbo_code_object turbo_kernels_step_f16[];
extern "C" const uint32_t turbo_n_kernels_step_f16;
#endif

namespace turbo::arch_rdna2 {
namespace {

/// As in step_f16.hip: rows, lanes of a head, queries of a tile.
struct Variant {
  const char* codec;
  uint32_t rows, lanes, queries;
  std::string name() const { return std::string("step_") + codec + "_" + std::to_string(rows) + "_" + std::to_string(lanes) + "_" + std::to_string(queries); }
};
/// Looks, of some 0.2 us each; a few hundred in the longest wait.
constexpr uint32_t kPatience = 1u << 22, kTrialPatience = 1u << 12;
const std::vector<Variant> kVariants = {{"f16", 1, 16, 1}, {"f16", 1, 16, 2}};

}  // namespace

StepTrial step_trial() {
  const char* const text = std::getenv("TURBO_HIP_STEP_TRIAL");
  StepTrial trial;
  if (!text) return trial;
  unsigned block = 0, stage = 0, tag = 0;
  if (std::sscanf(text, "stop=%u,%u,%u", &block, &stage, &tag) == 3) trial.blocks = {0, block + 1, stage + 1, tag};
  else if (std::strcmp(text, "stale") == 0) trial.stale = true, trial.blocks.delays = 1;
  else if (std::sscanf(text, "delays=%u", &trial.blocks.delays) != 1 &&
           (std::sscanf(text, "tag=%u", &trial.first_tag) != 1 || trial.first_tag == 0 || trial.first_tag > gpu::kLastTag))
    throw Failure(TURBO_INVALID_ARGUMENT, std::string("TURBO_HIP_STEP_TRIAL is \"") + text + "\"",
                  "delays=SEED, stop=BLOCK,STAGE,STEP, tag=1..65535 or stale");
  return trial;
}

std::unique_ptr<StepKernels> StepKernels::create(hip::Device& device, const StepTrial& trial) {
#if defined(TURBO_STEP_KERNELS)
  return std::unique_ptr<StepKernels>(new StepKernels(device, turbo_kernels_step_f16, turbo_n_kernels_step_f16, trial));
#else
  (void)device, (void)trial;
  return nullptr;
#endif
}

StepKernels::StepKernels(hip::Device& device, const turbo_code_object* objects, uint32_t n, const StepTrial& trial)
    : Kernels(*device.table(), objects, n), owner_(device), trial_(trial) {
  if (const char* const path = std::getenv("TURBO_HIP_STEP_MOMENTS")) moments_path_ = path;
  for (const Variant& variant : kVariants) kernels_[variant.name()] = find(variant.name().c_str());
  stopped_ = hip::DeviceMemory(device, TURBO_MEMORY_DEVICE, 256, "step kernels");
  report_ = hip::DeviceMemory(device, TURBO_MEMORY_PINNED, 256, "step kernels");
  std::memset(report_.get(), 0, 256);
  empty(stopped_);
}

turbo_kernel* StepKernels::kernel_for(const StageRun& run, uint32_t& rows) const {
  for (const Variant& variant : kVariants) {
    if (variant.rows < run.max_rows && variant.rows < 4) continue;
    if (run.attend && (run.attend->codec != variant.codec || run.attend->lanes != variant.lanes || run.attend->queries != variant.queries)) continue;
    rows = variant.rows;
    return kernels_.at(variant.name());
  }
  return nullptr;
}

FusedStep StepKernels::fuse(std::span<const hip::Enqueued> launches, const uint32_t* counts, Mailroom& mail, Staging& staging) const {
  FusedStep fused;
  const hip::DeviceFacts& facts = owner_.facts();
  uint64_t mail_bytes = 0;
  std::vector<gpu::Stage> stages;
  for (StageRun& run : find_stage_runs(launches, counts, facts.compute_units)) {
    uint32_t rows = 0, shared = 0;
    turbo_kernel* const kernel = kernel_for(run, rows);
    if (!kernel) continue;
    for (gpu::Stage& stage : run.stages) {
      if (stage.kind != gpu::stage_product) continue;
      stage.passes = (stage.product.max_rows + rows - 1) / rows;
      shared = std::max(shared, gpu::q1::matvec_shared_bytes(rows, stage.product.n_groups, stage.teams));
    }
    if (shared + kernel->shared_bytes > facts.max_shared_bytes ||
        owner_.runtime().resident_blocks(kernel, gpu::kStepThreads, shared) < facts.compute_units)
      continue;
    fused.parts.push_back({run.first, run.end, kernel, shared, {}});
    fused.parts.back().args.n_stages = static_cast<uint32_t>(run.stages.size());
    // Boxes are offsets + 1 of the run's own mail.
    const auto place = [&](uint8_t*& box) {
      if (box) box += mail_bytes;
    };
    for (gpu::Stage& stage : run.stages) {
      place(stage.mail.in);
      place(stage.mail.out);
      for (uint8_t*& box : stage.mail.floats) place(box);
      stages.push_back(stage);
    }
    mail_bytes += run.mail_bytes;
  }
  if (fused.empty()) return fused;
  uint8_t* const base = mail_of(mail, mail_bytes) - 1;
  const auto settle = [&](uint8_t*& box) {
    if (box) box = base + reinterpret_cast<uint64_t>(box);
  };
  for (gpu::Stage& stage : stages) {
    settle(stage.mail.in);
    settle(stage.mail.out);
    for (uint8_t*& box : stage.mail.floats) settle(box);
  }
  fused.stages = hip::DeviceMemory(owner_, TURBO_MEMORY_DEVICE, stages.size() * sizeof(gpu::Stage), "workspace");
  staging.to_device(fused.stages.get(), stages.data(), stages.size() * sizeof(gpu::Stage));
  const gpu::Stage* next = fused.stages.get<gpu::Stage>();
  uint64_t* moments = watch(stages.size());
  for (FusedStep::Part& part : fused.parts) {
    part.args = {next, counts, stopped_.get<uint32_t>(), report_.get<uint32_t>(), moments, part.args.n_stages, trial_.blocks.stop_stage ? kTrialPatience : kPatience, trial_.blocks};
    next += part.args.n_stages;
    if (moments) moments += part.args.n_stages * moments_of_stage();
  }
  return fused;
}

uint8_t* StepKernels::mail_of(Mailroom& mail, uint64_t bytes) const {
  for (const hip::DeviceMemory& memory : mail.memory)
    if (memory.bytes() >= bytes) return memory.get<uint8_t>();
  mail.memory.emplace_back(owner_, TURBO_MEMORY_DEVICE, std::max<uint64_t>(bytes, 1), "workspace");
  empty(mail.memory.back());
  return mail.memory.back().get<uint8_t>();
}

void StepKernels::empty(const hip::DeviceMemory& memory) const {
  const turbo_device& table = *owner_.table();
  checked("", [&](turbo_error* error) { return table.fill(table.ctx, table.stream, memory.get(), 0, memory.bytes(), error); });
}

uint64_t StepKernels::moments_of_stage() const { return uint64_t{owner_.facts().compute_units} * gpu::kStepMoments; }

// Of the last step that was recorded.
uint64_t* StepKernels::watch(uint64_t n_stages) const {
  if (moments_path_.empty()) return nullptr;
  moments_.emplace_back(owner_, TURBO_MEMORY_DEVICE, n_stages * moments_of_stage() * sizeof(uint64_t), "step kernels");
  empty(moments_.back());
  return moments_.back().get<uint64_t>();
}

void StepKernels::write_moments(Staging& staging) const {
  if (moments_.empty()) return;
  std::vector<char> bytes(moments_.back().bytes());
  staging.to_host(bytes.data(), moments_.back().get(), bytes.size());
  std::ofstream(moments_path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

void StepKernels::enqueue(const FusedStep& fused, std::span<const hip::Enqueued> launches, turbo_stream* stream) const {
  hip::Runtime& runtime = owner_.runtime();
  auto part = fused.parts.begin();
  for (size_t i = 0; i < launches.size();) {
    if (part == fused.parts.end() || i < part->first) {
      turbo_launch launch = launches[i].launch;
      launch.arguments = launches[i].arguments.data();
      runtime.launch(stream, launches[i].kernel, launch);
      ++i;
      continue;
    }
    turbo_launch launch{};
    launch.struct_size = sizeof launch;
    launch.grid_x = owner_.facts().compute_units;
    launch.grid_y = launch.grid_z = 1;
    launch.threads = gpu::kStepThreads;
    launch.shared_bytes = part->shared_bytes;
    launch.arguments = &part->args;
    launch.argument_bytes = sizeof part->args;
    launch.resident = 1;
    runtime.launch(stream, part->kernel, launch);
    i = part->end;
    ++part;
  }
}

uint32_t StepKernels::next_tag(Mailroom& mail) const {
  if (mail.tag == gpu::kLastTag) {
    for (const hip::DeviceMemory& memory : mail.memory) empty(memory);
    mail.tag = 0;
  }
  if (mail.tag == 0 && !mail.begun) mail.tag = trial_.first_tag - 1;
  mail.begun = true;
  if (trial_.stale) return mail.tag = 1;
  return ++mail.tag;
}

void StepKernels::forbid() {
  allowed_ = false;
  *report_.get<uint32_t>() = 0;
}

}  // namespace turbo::arch_rdna2
