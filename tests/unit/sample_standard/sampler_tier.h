// The sampler of the cpu tier.
#pragma once

#include <turbo/abi/sampler.h>
#include <turbo/fake/host.hpp>

extern "C" const turbo_plugin* turbo_plugin_query(uint32_t, uint32_t);

struct SamplerTier {
  static constexpr uint64_t kDraws = 1000000;
  explicit SamplerTier(turbo::fake::Host& host) : component(turbo_plugin_query, "sampler", "standard", TURBO_TIER_CPU, host) {}

  turbo_status sample(const turbo_sampler* table, const turbo_sample& args) { return table->sample(component.self(), &args, nullptr); }

  turbo::fake::Component component;
};
