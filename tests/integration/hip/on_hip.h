// A model on the hip tier, whose kernels run as fibers.
#pragma once

#include "harness.h"

namespace turbo::engine::testing {

inline ModelSetup on_hip(const std::string& model, const std::string& kv = "f32", std::function<void(profile::Profile&)> more = {}) {
  ModelSetup setup;
  setup.model = model;
  setup.activations = "f32";
  setup.kv = kv;
  setup.prefill_chunk = 16;
  setup.tune = [more](profile::Profile& profile) {
    profile.tiers = {"hip"};
    profile.require = "hip";
    profile.plugins.paths = {TURBO_FIBER_PLUGINS};
    profile.model.context = 128;
    profile.engine.max_step_tokens = 16;
    profile.engine.max_running = 2;
    if (more) more(profile);
  };
  return setup;
}

}  // namespace turbo::engine::testing
