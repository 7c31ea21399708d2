// What the engine works with, all borrowed.
#pragma once

#include <turbo/abi/drafter.h>
#include <turbo/abi/sampler.h>

#include <functional>
#include <string>

#include "base/status.h"
#include "kv/cache.h"
#include "model/arch/family.h"
#include "model/config.h"
#include "model/weights.h"

namespace turbo::engine {

class HostProgram;

struct EngineParts {
  model::Pack pack;
  const model::ModelConfig* config = nullptr;
  const model::WeightSet* weights = nullptr;
  model::BuildStep build_step = nullptr;
  kv::KvCache* cache = nullptr;
  const turbo_sampler* sampler = nullptr;
  void* sampler_self = nullptr;
  const turbo_drafter* drafter = nullptr;  // null = no speculation
  void* drafter_self = nullptr;
  uint32_t draft_slots = 0;  // root included; 0 = the drafter's maximum
  bool adaptive_drafts = false;  // false: every draft may take draft_slots
  std::string drafter_name;
  /// 64 hexadecimal digits over all that the bits of a cached position depend on; for saved prefixes. [any thread]
  std::function<Result<std::string>()> cache_fingerprint;
  HostProgram* host_program = nullptr;     // null = drafters have no program service
};

}  // namespace turbo::engine
