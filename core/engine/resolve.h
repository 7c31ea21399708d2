// From a profile and a model file to the loader's request. Private to engine/.
#pragma once

#include "kv/policy.h"
#include "loader/resolve.h"
#include "model/config.h"
#include "model/files/model_file.h"
#include "profile/profile.h"

namespace turbo::engine {

/// Compute threads the profile means; 0 = every usable processor.
uint32_t compute_threads(const profile::Profile& profile);

/// Layers of a target of `n_layers` that draft for it in a cache of their own; 0 with a drafter that does not do so.
uint32_t self_draft_layers(const profile::Profile& profile, uint32_t n_layers);

/// The drafter of the profile, those it works over, and the outcome cache around it, each with what is said to it: options
/// that the profile knows go to all that have them, others to the selected drafter, and those under a name to that one.
/// `n_layers`: the target's.
void add_drafters(const profile::Profile& profile, uint32_t n_layers, loader::Request& request);

/// `facts` is borrowed by the request. `draft_file`: a second model that will be loaded, or null.
loader::Request make_request(const profile::Profile& profile, const kv::CodecPolicy& policy, const model::ModelFile& file,
                             const model::ModelFile* draft_file, const turbo_model_facts* facts);

/// {profile, model} of `turbo plan --json`, then the loader's report.
nlohmann::ordered_json plan_json(const profile::Profile& profile, const model::ModelFile& file,
                                 const model::ModelConfig& config, const loader::Report& report);

}  // namespace turbo::engine
