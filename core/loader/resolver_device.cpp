// The device of the arch pack, handed to the formats, codecs and the sampler of its tier.
#include "loader/resolver.h"

namespace turbo::loader {

Instance* Resolver::instance_of(const Need& need) const {
  if (need.kind == TURBO_KIND_SAMPLER) return state_->sampler.get();
  if (need.kind == TURBO_KIND_KV_CODEC) return state_->codecs[need.slot == "kv_codec:v"].get();
  const auto entry = need.type ? state_->registry.weight_formats.find(*need.type) : state_->registry.weight_formats.end();
  if (entry == state_->registry.weight_formats.end()) return nullptr;
  for (const auto& [component, instance] : state_->formats)
    if (instance && instance->self() == entry->second.instance) return instance.get();
  return nullptr;
}

// False when a component refuses the device: it is rejected and the tier lost. pack_status tells of the pack's own faults.
Result<bool> Resolver::share_device(const Instance& pack, const Candidates& candidates, uint32_t tier, Status& pack_status) {
  const Result<const turbo_device*> device = pack.provided_device();
  pack_status = device.status();
  if (!device || !*device) return true;
  state_->shared_device = *device;
  for (size_t i = 1; i < needs_.size(); ++i) {
    const Need& need = needs_[i];
    Instance* const instance = instance_of(need);
    const Status status = instance ? instance->attach(**device) : Status::ok();
    if (status.is_ok()) continue;
    const Report::Chosen& chosen = *state_->slot(need.slot).chosen;
    for (const Candidate& candidate : candidates[i])
      if (candidate.ref.plugin->manifest.id == chosen.plugin && candidate.ref.component->name == chosen.component)
        reject_failed(need, candidate, status);
    lose(need, tier, status.message());
    return false;
  }
  return true;
}

}  // namespace turbo::loader
