// The arch_pack "cpu": owns the thread team and every weight, pool, table and plan handed out.
//
// Calls are [load] or [engine] as the interface says, one at a time. Weight formats and KV codecs come from the host's
// registry when first asked for.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/kernel/cpu_isa.hpp>

#include "plan.h"

#include <memory>
#include <string>
#include <unordered_map>

namespace turbo::arch_cpu {

const Kernels& kernels_for(CpuIsa isa);

class Pack : public pack::Facts {
 public:
  explicit Pack(const Host& host);
  static void probe(const Host& host, const turbo_probe_facts&, Probe& answer);
  static const void* interface(std::string_view id);
  void start();
  void stop();

  void device(turbo_device_info& info) const;
  void self_test();

  turbo_weight* weight_load(const turbo_weight_source& source);
  void weight_free(turbo_weight* weight) { weights_.erase(weight); }

  void kv_bytes(const turbo_kv_pool_desc& desc, turbo_kv_bytes& bytes) const;
  turbo_kv_pool* kv_create(const turbo_kv_pool_desc& desc);
  void kv_free(turbo_kv_pool* pool) { pools_.erase(pool); }
  void kv_pack(turbo_kv_pool* pool, int32_t open_id, int32_t block_id) { pool_pack(own(pool), open_id, block_id, team()); }
  turbo_kv_pool& own(turbo_kv_pool* pool) const;

  turbo_step_table* table_create(const turbo_step_caps& caps);
  void table_free(turbo_step_table* table) { tables_.erase(table); }

  turbo_plan* compile(const turbo_program& program);
  void plan_free(turbo_plan* plan) { plans_.erase(plan); }
  void run(turbo_plan* plan, turbo_step_table* table);
  void plan_buffer(turbo_plan* plan, uint32_t buffer, turbo_view& view) const;

  std::optional<pack::WeightFacts> weight(const turbo_weight* w) const override {
    return weights_.count(w) ? std::optional(facts_of(*w)) : std::nullopt;
  }
  std::optional<pack::PoolFacts> pool(const turbo_kv_pool* p) const override {
    return pools_.count(p) ? std::optional(facts_of(*p)) : std::nullopt;
  }

 private:
  uint32_t thread_count() const;
  ThreadTeam& team();
  FormatSource formats() const;
  CodecSource codecs() const;

  Host host_;
  const turbo_host_alloc* alloc_;
  CpuIsaChoice isa_;
  std::string isa_name_;
  const Kernels* kernels_;
  std::unique_ptr<ThreadTeam> team_;
  std::unordered_map<const turbo_weight*, std::unique_ptr<turbo_weight>> weights_;
  std::unordered_map<const turbo_kv_pool*, std::unique_ptr<turbo_kv_pool>> pools_;
  std::unordered_map<const turbo_step_table*, std::unique_ptr<StepTable>> tables_;
  std::unordered_map<const turbo_plan*, std::unique_ptr<turbo_plan>> plans_;
};

/// Tiny programs with every op against plain loops, on this team and these kernels. Throws Failure naming the op.
void run_self_test(ThreadTeam& team, const Kernels& kernels, const char* isa);

}  // namespace turbo::arch_cpu
