// The arch_pack "rdna2": owns the device, its stream and memory, and every weight, pool, table and plan handed out.
//
// Calls are [load] or [engine] as the interface says, one at a time. Weight formats and KV codecs come from the host's
// registry when first asked for, and use this pack's turbo_device.
#pragma once

#include <turbo/arch_pack.hpp>

#include "plan.h"

#include <memory>
#include <string>
#include <unordered_map>

namespace turbo::arch_rdna2 {

class Pack : public ArchPack<Pack>, public pack::Facts {
 public:
  explicit Pack(const Host& host);
  ~Pack() override;
  static void probe(const Host& host, const turbo_probe_facts&, Probe& answer);
  static const void* interface(std::string_view id);

  void device(turbo_device_info& info) override;
  bool supports(uint32_t op_kind) const noexcept override;
  void self_test() override;

  turbo_weight* weight_load(const turbo_weight_source& source) override;
  uint64_t weight_bytes(const turbo_weight* weight) const override { return weight->bytes(); }
  void weight_free(turbo_weight* weight) override { weights_.erase(weight); }

  void kv_bytes(const turbo_kv_pool_desc& desc, turbo_kv_bytes& bytes) override;
  turbo_kv_pool* kv_create(const turbo_kv_pool_desc& desc) override;
  void kv_free(turbo_kv_pool* pool) override { pools_.erase(pool); }
  void kv_pack(turbo_kv_pool* pool, int32_t open_id, int32_t block_id) override;
  void kv_copy(turbo_kv_pool* pool, int32_t src, int32_t dst, uint32_t form) override;
  void kv_move_row(turbo_kv_pool* pool, const turbo_kv_place& src, const turbo_kv_place& dst) override;
  void kv_read(turbo_kv_pool* pool, int32_t id, uint32_t form, void* dst, uint64_t bytes) override;
  void kv_write(turbo_kv_pool* pool, int32_t id, uint32_t form, const void* src, uint64_t bytes) override;

  turbo_step_table* table_create(const turbo_step_caps& caps) override;
  void table_free(turbo_step_table* table) override;

  turbo_plan* compile(const turbo_program& program) override;
  uint64_t plan_bytes(const turbo_plan* plan) const override { return plan->bytes(); }
  void plan_free(turbo_plan* plan) override { plans_.erase(plan); }
  void run(turbo_plan* plan, turbo_step_table& table) override;
  void sync() override;
  void plan_buffer(turbo_plan* plan, uint32_t buffer, turbo_view& view) override;
  void plan_read(turbo_plan* plan, uint32_t buffer, uint64_t row_begin, uint64_t n_rows, float* dst) override;
  const char* plan_explain(const turbo_plan* plan) const override { return plan->explanation.c_str(); }

  const turbo_device* device_table() const { return device_->table(); }

  // Of pack::Facts.
  std::optional<pack::WeightFacts> weight(const turbo_weight* w) const override {
    return weights_.count(w) ? std::optional(facts_of(*w)) : std::nullopt;
  }
  std::optional<pack::PoolFacts> pool(const turbo_kv_pool* p) const override {
    return pools_.count(p) ? std::optional(facts_of(*p)) : std::nullopt;
  }

 private:
  turbo_kv_pool& own(turbo_kv_pool* pool) const;
  turbo_plan& own(turbo_plan* plan) const;
  const turbo_buffer& readable(const turbo_plan& plan, uint32_t buffer) const;
  PlanTools tools();

  Host host_;
  bool graphs_, fuse_, step_kernel_;
  uint32_t threads_;
  HostComponents components_;
  std::unique_ptr<hip::Device> device_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<Scratch> scratch_;
  std::unique_ptr<StepKernels> step_kernels_;  // null: not wanted, or none are built
  std::unordered_map<const turbo_weight*, std::unique_ptr<turbo_weight>> weights_;
  std::unordered_map<const turbo_kv_pool*, std::unique_ptr<turbo_kv_pool>> pools_;
  std::unordered_map<const turbo_step_table*, std::unique_ptr<StepTable>> tables_;
  std::unordered_map<const turbo_plan*, std::unique_ptr<turbo_plan>> plans_;
};

/// Tiny programs with every op against plain loops, on this device, step by step and recorded. Throws Failure.
void run_self_test(const PlanTools& tools, Staging& staging);

}  // namespace turbo::arch_rdna2
