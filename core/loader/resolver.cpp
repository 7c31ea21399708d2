#include "loader/resolver.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstddef>

#include "loader/library.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

struct OpName {
  uint32_t kind;
  const char* name;
};
constexpr OpName op_names[] = {
    {TURBO_OP_EMBED, "embed"},   {TURBO_OP_RMS_NORM, "rms_norm"},   {TURBO_OP_MATMUL, "matmul"},
    {TURBO_OP_ADD, "add"},       {TURBO_OP_ROPE, "rope"},           {TURBO_OP_KV_APPEND, "kv_append"},
    {TURBO_OP_ATTEND, "attend"}, {TURBO_OP_GATED_ACT, "gated_act"}, {TURBO_OP_GATHER_ROWS, "gather_rows"},
    {TURBO_OP_TAP, "tap"},       {TURBO_OP_TOP_K, "top_k"},         {TURBO_OP_CONCAT, "concat"}};

Need named(std::string slot, const char* kind, const std::string& name) {
  return {std::move(slot), kind, name, std::nullopt, fmt::format("{} '{}'", kind, clean_text(name, 64))};
}

// A weight format must serve in the library what its manifest promises.
Status check_types(const Instance& instance, uint32_t type) {
  const auto* table = static_cast<const turbo_weight_format*>(instance.table());
  const turbo_type_info* types = nullptr;
  uint32_t n = 0;
  TURBO_RETURN_IF_ERROR(call_plugin(instance.what() + ": types",
                                    [&](turbo_error*) { return table->types(instance.self(), &types, &n); }));
  if (n > 1024 || (n > 0 && !types)) return error(Code::internal, "{}: types: answered {} types", instance.what(), n);
  constexpr uint32_t bytes_1_0 = offsetof(turbo_type_info, block_bytes) + sizeof(uint32_t);
  const uint32_t stride = n > 0 ? types->struct_size : 0;
  if (n > 0 && (stride < bytes_1_0 || stride > 4096 || stride % alignof(turbo_type_info) != 0))
    return error(Code::internal, "{}: types: struct_size {} of its entries", instance.what(), stride);
  for (uint32_t i = 0; i < n; ++i) {
    const auto* info =
        reinterpret_cast<const turbo_type_info*>(reinterpret_cast<const char*>(types) + size_t{i} * stride);
    if (info->type == type && info->block_weights > 0 && info->block_bytes > 0) return Status::ok();
  }
  return error(Code::corrupt_input, "{}: the manifest lists GGUF type {} but the library does not serve it",
               instance.what(), type);
}

}  // namespace

CatalogSettings catalog_settings(const Request& request) {
  CatalogSettings settings = CatalogSettings::of_this_process();
  settings.plugin_paths = request.plugin_paths;
  settings.allow_unsafe = request.allow_unsafe;
  return settings;
}

Result<Resolution> resolve(const Request& request, Catalog& catalog, const Services& services, Report* report) {
  Resolver resolver(request, catalog, services);
  Result<Resolution> resolution = resolver.run();
  if (report) *report = resolution ? resolution->report() : resolver.report();
  return resolution;
}

Status check_drafters(const Request& request, Catalog& catalog) {
  return request.drafter == "off" ? Status::ok() : Resolver(request, catalog, {}).check_drafters();
}

Resolver::Resolver(const Request& request, Catalog& catalog, const Services& services)
    : request_(request), catalog_(catalog), state_(std::make_unique<Resolution::State>()) {
  state_->services = services;
  if (!state_->services.memory) state_->services.memory = std::make_shared<MemoryTags>();
  state_->compute_threads = request.compute_threads;
  needs_.push_back({TURBO_KIND_ARCH_PACK, TURBO_KIND_ARCH_PACK, "", std::nullopt, "an arch_pack"});
  for (const WeightType& type : request.weight_types) {
    const std::string name = clean_text(type.name, 32), slot = "weight_format:" + name;
    const bool known =
        std::any_of(needs_.begin(), needs_.end(), [&](const Need& need) { return need.type == type.number; });
    if (!known)
      needs_.push_back({slot, TURBO_KIND_WEIGHT_FORMAT, "", type.number,
                        fmt::format("a weight_format for {} (GGUF type {})", name, type.number)});
  }
  needs_.push_back(named("kv_codec:k", TURBO_KIND_KV_CODEC, request.kv_k));
  needs_.push_back(named("kv_codec:v", TURBO_KIND_KV_CODEC, request.kv_v));
  needs_.push_back(named("sampler", TURBO_KIND_SAMPLER, request.sampler));
}

void Resolver::reject(const std::string& slot, const std::string& plugin, uint32_t tier, std::string reason) {
  std::vector<Report::Rejected>& rejected = state_->slot(slot).rejected;
  const std::string name = tier_name(tier);
  const bool known = std::any_of(rejected.begin(), rejected.end(), [&](const Report::Rejected& r) {
    return r.plugin == plugin && r.tier == name && r.reason == reason;
  });
  if (!known) rejected.push_back({plugin, name, std::move(reason)});
}

void Resolver::reject_failed(const Need& need, const Candidate& candidate, const Status& status) {
  const auto& log = state_->services.log;
  (log ? *log : *spdlog::default_logger_raw()).warn("{}", status.message());
  reject(need.slot, candidate.ref.plugin->manifest.id, candidate.ref.component->tier, status.message());
}

std::string Loss::text() const {
  return slots.size() == 1 ? fmt::format("{}: {}: {}", tier, slots.front(), why)
                           : fmt::format("{}: {} ({})", tier, why, fmt::join(slots, ", "));
}

void Resolver::lose(const Need& need, uint32_t tier, const std::string& why, bool absent) {
  for (Loss& loss : losses_)
    if (loss.why == why) return loss.slots.push_back(need.slot);
  losses_.push_back({tier_name(tier), why, {need.slot}, absent});
}

Result<Resolution> Resolver::run() {
  for (const std::string& warning : catalog_.warnings()) report().warnings.push_back(warning);
  const size_t known_warnings = catalog_.warnings().size();
  TURBO_RETURN_IF_ERROR(check_request());
  for (const Need& need : needs_) state_->slot(need.slot);
  state_->slot("drafter");
  for (uint32_t tier : tiers_) {
    TURBO_ASSIGN(const bool serves, try_tier(tier));
    if (serves) {
      state_->tier = tier;
      report().tier = tier_name(tier);
      break;
    }
    all_losses_.insert(all_losses_.end(), losses_.begin(), losses_.end());
    installing_helps_ &= std::any_of(losses_.begin(), losses_.end(), [](const Loss& loss) { return loss.absent; });
  }
  if (state_->tier == 0) return no_tier();
  if (state_->tier != tiers_.front())
    report().warnings.push_back(fmt::format("tier {} is used instead of {}: {}", tier_name(state_->tier),
                                            tier_name(tiers_.front()), all_losses_.front().text()));
  list_outranked();
  TURBO_RETURN_IF_ERROR(resolve_spare_codecs());
  TURBO_RETURN_IF_ERROR(resolve_drafters());
  std::vector<std::string>& warnings = report().warnings;
  warnings.insert(warnings.end(), experimental_.begin(), experimental_.end());
  for (size_t i = known_warnings; i < catalog_.warnings().size(); ++i)
    report().warnings.push_back(catalog_.warnings()[i]);
  return Resolution(std::move(state_));
}

Status Resolver::no_tier() const {
  std::string reasons;
  for (const Loss& loss : all_losses_) reasons += (reasons.empty() ? "" : "; ") + loss.text();
  if (request_.require)
    return Status(
        Code::unsupported, fmt::format("required tier {} cannot be used: {}", *request_.require, reasons),
        "remove `require` to fall back to another tier, or mend the cause; `turbo plan` lists every candidate");
  return Status(Code::unsupported, fmt::format("no tier can serve this model: {}", reasons),
                (installing_helps_ ? catalog_.install_hint() : "mend the cause") +
                    "; `turbo plan` and `turbo doctor` list every candidate");
}

Result<bool> Resolver::try_tier(uint32_t tier) {
  losses_.clear();
  experimental_.clear();
  std::vector<std::vector<ComponentRef>> refs;
  for (const Need& need : needs_) {
    TURBO_ASSIGN(std::vector<ComponentRef> found, installed(need, tier));
    if (found.empty()) {
      const bool refused = std::any_of(state_->slot(need.slot).rejected.begin(), state_->slot(need.slot).rejected.end(),
                                       [&](const Report::Rejected& r) { return r.tier == tier_name(tier); });
      const std::string why =
          refused ? fmt::format("every plugin that provides {} for tier {} was refused", need.what, tier_name(tier))
                  : fmt::format("no plugin provides {} for tier {}", need.what, tier_name(tier));
      reject(need.slot, "", tier, why + "; " + catalog_.install_hint());
      lose(need, tier, why, !refused);
    }
    refs.push_back(std::move(found));
  }
  Candidates candidates(needs_.size());
  // With a slot that nothing can fill, no library of the tier is worth loading.
  if (!losses_.empty()) {
    for (size_t i = 0; i < needs_.size(); ++i)
      for (const ComponentRef& ref : refs[i])
        reject(needs_[i].slot, ref.plugin->manifest.id, tier, fmt::format("not tried: {}", losses_.front().text()));
    return false;
  }
  for (size_t i = 0; i < needs_.size(); ++i) {
    candidates[i] = usable(needs_[i], refs[i]);
    if (candidates[i].empty()) lose(needs_[i], tier, state_->slot(needs_[i].slot).rejected.back().reason);
  }
  bool serves = false;
  if (losses_.empty()) {
    TURBO_ASSIGN(serves, build(candidates, tier));
  }
  if (!serves) give_up(candidates, tier);
  return serves;
}

void Resolver::give_up(const Candidates& candidates, uint32_t tier) {
  state_->stop_all();
  state_->destroy_all();
  for (size_t i = 0; i < needs_.size(); ++i) {
    state_->slot(needs_[i].slot).chosen.reset();
    for (const Candidate& candidate : candidates[i]) {
      const std::string& id = candidate.ref.plugin->manifest.id;
      const auto& rejected = state_->slot(needs_[i].slot).rejected;
      const bool explained = std::any_of(rejected.begin(), rejected.end(), [&](const Report::Rejected& r) {
        return r.plugin == id && r.tier == tier_name(tier);
      });
      if (!explained) reject(needs_[i].slot, id, tier, fmt::format("usable, but its tier lost: {}", losses_.front().text()));
    }
  }
}

// Formats and codecs come before the pack, which may ask the registry for them as soon as it is created.
Result<bool> Resolver::build(const Candidates& candidates, uint32_t tier) {
  std::vector<const turbo_component*> formats, codecs;
  for (size_t i = 1; i < needs_.size(); ++i) {
    const Need& need = needs_[i];
    std::unique_ptr<Instance>* slot = need.slot == "kv_codec:k"   ? &state_->codecs[0]
                                      : need.slot == "kv_codec:v" ? &state_->codecs[1]
                                                                  : &state_->sampler;
    Result<bool> built = need.type ? build_format(need, candidates[i]) : build_first(need, candidates[i], *slot);
    if (!built) return built.status();
    if (!*built) {
      lose(need, tier, state_->slot(need.slot).rejected.back().reason);
      return false;
    }
    if (need.kind == TURBO_KIND_KV_CODEC)
      state_->registry.kv_codecs[need.slot == "kv_codec:v"] = {(*slot)->table(), (*slot)->self()};
    for (const Candidate& candidate : candidates[i]) {
      const Report::Chosen& chosen = *state_->slot(need.slot).chosen;
      if (candidate.ref.plugin->manifest.id != chosen.plugin || candidate.ref.component->name != chosen.component)
        continue;
      if (need.type) formats.push_back(candidate.component);
      if (need.kind == TURBO_KIND_KV_CODEC) codecs.push_back(candidate.component);
    }
  }
  TURBO_RETURN_IF_ERROR(check_shared_options(TURBO_KIND_WEIGHT_FORMAT, formats));
  TURBO_RETURN_IF_ERROR(check_shared_options(TURBO_KIND_KV_CODEC, codecs));
  return build_pack(candidates, tier);
}

// Records the choice, and why the ones behind it lost.
void Resolver::choose(const Need& need, const std::vector<Candidate>& candidates, size_t index) {
  const Candidate& candidate = candidates[index];
  Report::Slot& slot = state_->slot(need.slot);
  slot.chosen = chosen_of(candidate);
  for (size_t i = index + 1; i < candidates.size(); ++i)
    reject(need.slot, candidates[i].ref.plugin->manifest.id, candidates[i].ref.component->tier,
           candidates[i].probe.score < candidate.probe.score
               ? fmt::format("score {} is below {} of '{}'", candidates[i].probe.score, candidate.probe.score,
                             slot.chosen->plugin)
               : fmt::format("same score {} as '{}', which comes first by id", candidate.probe.score,
                             slot.chosen->plugin));
  if (candidate.component->flags & TURBO_COMPONENT_EXPERIMENTAL)
    experimental_.push_back(fmt::format("{} is experimental", describe(candidate.ref)));
}

Result<bool> Resolver::build_first(const Need& need, const std::vector<Candidate>& candidates,
                                   std::unique_ptr<Instance>& slot) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    TURBO_RETURN_IF_ERROR(candidates[i].option_status);
    Result<std::unique_ptr<Instance>> instance = create_instance(candidates[i], *state_, nullptr, nullptr);
    if (instance) {
      slot = *std::move(instance);
      choose(need, candidates, i);
      return true;
    }
    reject_failed(need, candidates[i], instance.status());
  }
  return false;
}

Result<bool> Resolver::build_format(const Need& need, const std::vector<Candidate>& candidates) {
  for (size_t i = 0; i < candidates.size(); ++i) {
    TURBO_RETURN_IF_ERROR(candidates[i].option_status);
    std::unique_ptr<Instance>& held = state_->formats[candidates[i].ref.component];
    Status status;
    if (!held) {
      Result<std::unique_ptr<Instance>> instance = create_instance(candidates[i], *state_, nullptr, nullptr);
      status = instance.status();
      if (instance) held = *std::move(instance);
    }
    if (status.is_ok()) status = check_types(*held, *need.type);
    if (status.is_ok()) {
      state_->registry.weight_formats[*need.type] = {held->table(), held->self()};
      choose(need, candidates, i);
      return true;
    }
    if (!held) state_->formats.erase(candidates[i].ref.component);
    reject_failed(need, candidates[i], status);
  }
  return false;
}

Status Resolver::accept_pack(const Candidate& candidate, std::unique_ptr<Instance>& instance) {
  const auto* table = static_cast<const turbo_arch_pack*>(instance->table());
  turbo_device_info device{};
  device.struct_size = sizeof device;
  TURBO_RETURN_IF_ERROR(call_plugin(instance->what() + ": device", [&](turbo_error* error) {
    return table->device(instance->self(), &device, error);
  }));
  TURBO_RETURN_IF_ERROR(call_plugin(instance->what() + ": self_test",
                                    [&](turbo_error* error) { return table->self_test(instance->self(), error); }));
  state_->device = device;
  report().device = Report::Device{clean_c_text(device.name, sizeof device.name),
                                   clean_c_text(device.isa, sizeof device.isa), device.memory_bytes, device.threads};
  state_->pack = std::move(instance);
  list_ops(candidate);
  return Status::ok();
}

Result<bool> Resolver::build_pack(const Candidates& all, uint32_t tier) {
  const Need& need = needs_.front();
  const std::vector<Candidate>& candidates = all.front();
  state_->registry.interface = [state = state_.get()](const void* instance, const char* id) { return state->interface_of(instance, id); };
  for (size_t i = 0; i < candidates.size(); ++i) {
    TURBO_RETURN_IF_ERROR(candidates[i].option_status);
    Result<std::unique_ptr<Instance>> created = create_instance(candidates[i], *state_, &state_->registry, nullptr);
    Status status = created.status();
    std::unique_ptr<Instance> instance = created ? *std::move(created) : nullptr;
    if (instance) {
      TURBO_ASSIGN(const bool shared, share_device(*instance, all, tier, status));
      if (status.is_ok() && shared) status = accept_pack(candidates[i], instance);
      if (!status.is_ok() || !shared) state_->detach_all();
      if (!shared) return false;
    }
    if (status.is_ok()) {
      choose(need, candidates, i);
      return true;
    }
    reject_failed(need, candidates[i], status);
  }
  lose(need, tier, state_->slot(need.slot).rejected.back().reason);
  return false;
}

void Resolver::list_ops(const Candidate& pack) {
  const auto* table = static_cast<const turbo_arch_pack*>(state_->pack->table());
  for (const OpName& op : op_names) {
    Report::Slot& slot = state_->slot(std::string("op:") + op.name);
    uint32_t supported = 0;
    const Status status = call_plugin(state_->pack->what() + ": supports", [&](turbo_error*) {
      supported = table->supports(state_->pack->self(), op.kind);
      return TURBO_OK;
    });
    if (status.is_ok() && supported == 1)
      slot.chosen = chosen_of(pack);
    else
      slot.rejected.push_back(
          {pack.ref.plugin->manifest.id, tier_name(pack.component->tier), "the pack has no such op"});
  }
}

// Candidates of tiers that were never looked at.
void Resolver::list_outranked() {
  const auto place = std::find(tiers_.begin(), tiers_.end(), state_->tier);
  for (const Need& need : needs_)
    for (const ComponentRef& ref : catalog_.components(need.kind)) {
      if (!need.matches(*ref.component)) continue;
      const uint32_t tier = ref.component->tier;
      const auto listed = std::find(tiers_.begin(), tiers_.end(), tier);
      if (listed == tiers_.end())
        reject(need.slot, ref.plugin->manifest.id, tier,
               request_.require ? fmt::format("tier {} is required", *request_.require)
                                : fmt::format("tier {} is not in the profile's list", tier_name(tier)));
      else if (listed > place)
        reject(need.slot, ref.plugin->manifest.id, tier,
               fmt::format("tier {} comes before {}", tier_name(state_->tier), tier_name(tier)));
    }
}

// Spare codecs are no slots: what the request can do without is not explained, and only asked for when needed.
Status Resolver::resolve_spare_codecs() {
  for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V})
    for (const std::string& name : request_.spare_codecs[side]) {
      Need need = named(side == TURBO_KV_SIDE_K ? "kv_codec:k" : "kv_codec:v", TURBO_KIND_KV_CODEC, name);
      need.spare = true;
      TURBO_ASSIGN(const std::vector<ComponentRef> refs, installed(need, state_->tier));
      for (const Candidate& candidate : usable(need, refs)) {
        Result<std::unique_ptr<Instance>> instance = create_instance(candidate, *state_, nullptr, nullptr);
        if (!instance) continue;
        if (state_->shared_device && !(*instance)->attach(*state_->shared_device).is_ok()) continue;
        state_->spare_codecs[side][name] = *std::move(instance);
        break;
      }
    }
  return Status::ok();
}

Status Resolver::resolve_drafters() {
  return request_.drafter == "off" ? Status::ok() : resolve_drafter(request_.drafter, false).status();
}

// Inner drafters first; the place of this one in the state's list, or none when nothing can serve it.
Result<size_t> Resolver::resolve_drafter(const std::string& name, bool inner) {
  constexpr size_t none = SIZE_MAX;
  auto part = std::make_unique<DrafterPart>();
  part->name = name;
  part->slot = inner ? "drafter:" + clean_text(name, 64) : "drafter";
  if (!inner) state_->slot(part->slot);
  if (const auto over = request_.drafter_over.find(name); over != request_.drafter_over.end())
    for (const std::string& other : over->second) {
      TURBO_ASSIGN(const size_t place, resolve_drafter(other, true));
      if (place != none) part->over.push_back(place);
    }
  const Need need = named(part->slot, TURBO_KIND_DRAFTER, name);
  std::vector<uint32_t> tiers(std::find(tiers_.begin(), tiers_.end(), state_->tier), tiers_.end());
  if (std::find(tiers.begin(), tiers.end(), TURBO_TIER_CPU) == tiers.end()) tiers.push_back(TURBO_TIER_CPU);
  std::vector<Candidate>& candidates = part->candidates;
  for (uint32_t tier : tiers) {
    TURBO_ASSIGN(const std::vector<ComponentRef> refs, installed(need, tier));
    if (refs.empty())
      reject(need.slot, "", tier, fmt::format("no plugin provides {} for tier {}", need.what, tier_name(tier)));
    for (Candidate& candidate : usable(need, refs)) {
      const Result<const void*> table = checked_interface(*candidate.component);
      if (table)
        candidates.push_back(std::move(candidate));
      else
        reject(need.slot, candidate.ref.plugin->manifest.id, tier, table.status().message());
    }
  }
  for (const ComponentRef& ref : catalog_.components(need.kind))
    if (need.matches(*ref.component) && std::find(tiers.begin(), tiers.end(), ref.component->tier) == tiers.end())
      reject(need.slot, ref.plugin->manifest.id, ref.component->tier,
             fmt::format("its tier is above {}", tier_name(state_->tier)));
  if (candidates.empty()) {
    const std::string why = state_->slot(need.slot).rejected.back().reason;
    if (request_.require)
      return Status(Code::unsupported, fmt::format("{} cannot be used: {}", need.what, why),
                    "remove `require`, or set drafter: off");
    report().warnings.push_back(inner ? fmt::format("the composed drafter goes without '{}': {}", clean_text(name, 64), why)
                                      : fmt::format("no drafter: {}: {}", need.what, why));
    // Without the one that the engine would get, the inner ones are of no use.
    if (!inner) state_->drafters.clear();
    return none;
  }
  TURBO_RETURN_IF_ERROR(candidates.front().option_status);
  std::erase_if(candidates, [](const Candidate& candidate) { return !candidate.option_status.is_ok(); });
  choose(need, {candidates.front()}, 0);
  for (size_t i = 1; i < candidates.size(); ++i) {
    const Candidate& other = candidates[i];
    const bool lower_tier = other.component->tier != candidates.front().component->tier;
    reject(need.slot, other.ref.plugin->manifest.id, other.component->tier,
           lower_tier ? fmt::format("tier {} comes before {}", tier_name(candidates.front().component->tier),
                                    tier_name(other.component->tier))
                      : fmt::format("score {} is not above {} of '{}'", other.probe.score,
                                    candidates.front().probe.score, candidates.front().ref.plugin->manifest.id));
  }
  const bool composed = request_.drafter_over.count(name) != 0;
  if (composed && part->over.empty()) {
    if (!inner) state_->drafters.clear();
    report().warnings.push_back(fmt::format("{}: {}: none of the drafters that it works over can be used",
                                            inner ? "the composed drafter goes without it" : "no drafter", need.what));
    state_->slot(need.slot).chosen.reset();
    return none;
  }
  state_->drafters.push_back(std::move(part));
  return state_->drafters.size() - 1;
}

}  // namespace turbo::loader
