// Compiled step plans by row bucket: 1, 2, 4, ... rows. Built on first use, kept until stop. Engine thread only.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "engine/parts.h"

namespace turbo::engine {

struct CompiledStep {
  model::StepProgram program;
  turbo_plan* plan = nullptr;
};

class PlanCache {
 public:
  PlanCache(const EngineParts& parts, std::vector<int32_t> tap_layers) : parts_(parts), tap_layers_(std::move(tap_layers)) {}
  ~PlanCache();
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;

  /// The plan whose buckets hold this many rows; n_logit_rows may be 0.
  Result<const CompiledStep*> get(uint32_t n_rows, uint32_t n_logit_rows);
  uint64_t workspace_bytes() const;

 private:
  const EngineParts& parts_;
  std::vector<int32_t> tap_layers_;
  std::map<std::pair<uint32_t, uint32_t>, std::unique_ptr<CompiledStep>> steps_;
};

}  // namespace turbo::engine
