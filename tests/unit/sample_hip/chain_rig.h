// The sampler's library attached to a device of fibers, and its chain table: what tests of that table begin with.
#pragma once

#include <turbo/abi/draft/verify_device.h>

#include <vector>

#include "sampler_tier.h"

namespace turbo {

struct ChainRig {
  fake::Host host;
  SamplerTier sampler{host};
  FiberDevice& device = sampler.device;
  turbo_stream* stream = device.api()->stream;
  void* self = sampler.component.self();
  const turbo_chain_ops* chain = sampler.component.interface<turbo_chain_ops>(TURBO_CHAIN_OPS_DRAFT);
  turbo_error error{sizeof(turbo_error), 0, {}, {}};

  template <typename T>
  T* make(size_t n, T value = {}) {
    return device.upload(std::vector<T>(n, value));
  }
};

}  // namespace turbo
