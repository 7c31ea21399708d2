// The sampler of the hip tier, on fibers.
#pragma once

#include <turbo/abi/draft/device.h>
#include <turbo/abi/sampler.h>
#include <turbo/fake/host.hpp>

#include "fiber_device.h"

extern "C" const turbo_plugin* turbo_plugin_query(uint32_t, uint32_t);

struct SamplerTier {
  static constexpr uint64_t kDraws = 3000;
  explicit SamplerTier(turbo::fake::Host& host) : component(turbo_plugin_query, "sampler", "standard", TURBO_TIER_HIP, host) {
    const auto* client = component.interface<turbo_device_client>(TURBO_DEVICE_CLIENT_DRAFT);
    if (client->attach(component.self(), device.api(), nullptr) != TURBO_OK) std::abort();
  }
  ~SamplerTier() { component.interface<turbo_device_client>(TURBO_DEVICE_CLIENT_DRAFT)->detach(component.self()); }

  /// The batch's logits go to the device first.
  turbo_status sample(const turbo_sampler* table, turbo_sample args, turbo_error* error = nullptr) {
    const uint64_t n = args.n_rows == 0 ? 0 : (args.n_rows - 1) * args.logit_stride + args.vocab;
    float* const logits = device.upload(std::vector<float>(args.logits, args.logits + n));
    args.logits = logits;
    const turbo_status status = table->sample(component.self(), &args, error);
    device.release(logits);
    return status;
  }

  turbo::FiberDevice device;
  turbo::fake::Component component;
};
