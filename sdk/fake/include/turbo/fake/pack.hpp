// A scripted arch pack: records what is compiled and run, computes nothing. Outputs come from `on_run`.
#pragma once

#include <turbo/arch_pack.hpp>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace turbo::fake {

class Pack : public turbo::ArchPack<Pack> {
 public:
  struct Weight { std::string name; uint32_t type; uint64_t rows, cols; };
  struct Pool { turbo_kv_pool_desc desc; };
  struct Plan {
    std::string name;
    std::vector<uint32_t> ops;  // TURBO_OP_* in order
    uint32_t max_rows = 0, n_inputs = 0;
    std::vector<uint64_t> widths;
    std::vector<std::string> buffer_names;
    std::vector<std::vector<float>> buffers;  // max_rows * width each
  };
  struct Run { std::string plan; std::vector<int32_t> tokens, positions; };

  /// Called by run; writes what the plan should have computed.
  std::function<void(Plan&, const turbo_step_table&)> on_run;
  std::vector<uint32_t> unsupported_ops;  // refused by supports and compile
  std::vector<std::string> compiled;      // program names in order
  std::vector<Run> runs;
  int live_plans = 0, live_weights = 0, live_pools = 0, live_tables = 0;

  const turbo_arch_pack* table() const { return static_cast<const turbo_arch_pack*>(interface(TURBO_ARCH_PACK_DRAFT)); }
  static const Plan& plan(const turbo_plan* plan) { return *reinterpret_cast<const Plan*>(plan); }

  void device(turbo_device_info& info) override;
  bool supports(uint32_t op_kind) const noexcept override;
  turbo_weight* weight_load(const turbo_weight_source& source) override;
  uint64_t weight_bytes(const turbo_weight* weight) const override;
  void weight_free(turbo_weight* weight) override;
  turbo_kv_pool* kv_create(const turbo_kv_pool_desc& desc) override;
  void kv_free(turbo_kv_pool* pool) override;
  turbo_step_table* table_create(const turbo_step_caps& caps) override;
  void table_free(turbo_step_table* table) override;
  turbo_plan* compile(const turbo_program& program) override;
  uint64_t plan_bytes(const turbo_plan* plan) const override;
  void plan_free(turbo_plan* plan) override;
  void run(turbo_plan* plan, turbo_step_table& table) override;
  void plan_buffer(turbo_plan* plan, uint32_t buffer, turbo_view& view) override;
};

}  // namespace turbo::fake
