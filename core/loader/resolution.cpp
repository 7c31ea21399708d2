#include "loader/resolution.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "loader/text.h"

namespace turbo::loader {

std::string instance_label(const ComponentRef& ref) { return ref.plugin->manifest.id + "/" + ref.component->name; }

Report::Chosen chosen_of(const Candidate& candidate) {
  const ComponentRef& ref = candidate.ref;
  return {ref.plugin->manifest.id, ref.plugin->manifest.version, ref.component->name, tier_name(ref.component->tier),
          candidate.probe.score};
}

Result<std::unique_ptr<Instance>> create_instance(const Candidate& candidate, const Resolution::State& state,
                                                  const Registry* registry, const turbo_host_program* const* program,
                                                  const InnerDrafters* inner) {
  ComponentHost::Settings settings;
  settings.label = instance_label(candidate.ref);
  settings.services = state.services;
  settings.options = candidate.options;
  settings.compute_threads = state.compute_threads;
  settings.files = candidate.files;
  settings.registry = registry;
  settings.program = program;
  if (program) settings.program_asked = state.program_asked;
  settings.inner_drafters = inner;
  return Instance::create(*candidate.component, std::move(settings), describe(candidate.ref));
}

Resolution::State::~State() {
  stop_all();
  destroy_all();
}

void Resolution::State::stop_all() {
  stop_drafters();
  for (Instance* instance : {sampler.get(), pack.get(), codecs[1].get(), codecs[0].get()})
    if (instance) instance->stop();
  for (auto& side : spare_codecs)
    for (auto& [name, instance] : side) instance->stop();
  for (auto& [component, instance] : formats) instance->stop();
}

void Resolution::State::destroy_all() {
  destroy_drafters();
  drafters.clear();
  detach_all();
  // What a worker that still runs holds of the device must stay.
  const auto all = clients();
  if (std::any_of(all.begin(), all.end(), [](const Instance* client) { return client->attached(); })) (void)pack.release();
  sampler.reset();
  pack.reset();
  for (auto& side : spare_codecs) side.clear();
  codecs[1].reset();
  codecs[0].reset();
  formats.clear();
  registry = {};
}

const void* Resolution::State::interface_of(const void* instance, const char* id) const {
  for (const Instance* client : clients())
    if (instance && client->self() == instance) return client->interface(id);
  return nullptr;
}

std::vector<Instance*> Resolution::State::clients() const {
  std::vector<Instance*> all;
  const auto add = [&all](const std::unique_ptr<Instance>& instance) {
    if (instance) all.push_back(instance.get());
  };
  for (const auto& [component, instance] : formats) add(instance);
  for (const auto& codec : codecs) add(codec);
  for (const auto& side : spare_codecs)
    for (const auto& [name, instance] : side) add(instance);
  add(sampler);
  return all;
}

void Resolution::State::detach_all() {
  for (Instance* client : clients())
    if (!client->stuck()) client->detach();
  shared_device = nullptr;
}

// The pack's ops before the sampler's: whoever offers them in this tier, they are used only where they are right.
void Resolution::State::choose_tree_ops() {
  std::vector<TreeOpsOffer> offers;
  for (const Instance* instance : {pack.get(), sampler.get()}) {
    if (!instance) continue;
    const Result<const void*> table = instance->extension(TURBO_TREE_OPS_DRAFT, 2 * sizeof(uint32_t));
    if (table) offers.push_back({instance->what(), static_cast<const turbo_tree_ops*>(*table), instance->self()});
    else report.warnings.push_back(table.status().message());
  }
  tree_ops = loader::choose_tree_ops(offers);
  for (const TreeOps::Choice& choice : tree_ops.choices)
    for (const std::string& loss : choice.losses) report.warnings.push_back(fmt::format("tree op {}: {}; {} computes it", choice.op, loss, choice.who));
  const auto& log = services.log;
  (log ? *log : *spdlog::default_logger_raw()).debug("tree ops: {}", tree_ops.text());
}

// The outer ones first: they call the inner ones.
void Resolution::State::stop_drafters() {
  for (auto part = drafters.rbegin(); part != drafters.rend(); ++part)
    if ((*part)->instance) (*part)->instance->stop();
}

void Resolution::State::destroy_drafters() {
  bool in_use = false;
  for (auto at = drafters.rbegin(); at != drafters.rend(); ++at) {
    DrafterPart& part = **at;
    if (!part.instance) continue;
    part.instance->stop();
    // A worker that still runs in an outer drafter may be inside an inner one, or come back to it.
    if (in_use) (void)part.instance.release();
    in_use |= part.instance && part.instance->stuck();
    part.instance.reset();
    if (in_use) (void)at->release();  // its list of inner drafters is theirs too
    if (in_use) *at = std::make_unique<DrafterPart>();
  }
}

// Create and start the part's best candidate that can be.
Status Resolution::State::open_part(DrafterPart& part) {
  Report::Slot& row = slot(part.slot);
  Status last = error(Code::unsupported, "drafter '{}' cannot be used", clean_text(part.name, 64));
  for (const Candidate& candidate : part.candidates) {
    Result<std::unique_ptr<Instance>> instance =
        create_instance(candidate, *this, nullptr, &program, part.inner.empty() ? nullptr : &part.inner);
    Status status = instance.status();
    if (status.is_ok()) status = (*instance)->start();
    if (status.is_ok()) {
      part.instance = *std::move(instance);
      row.chosen = chosen_of(candidate);
      std::erase_if(row.rejected, [&](const Report::Rejected& rejected) {
        return rejected.plugin == row.chosen->plugin && rejected.tier == row.chosen->tier;
      });
      return Status::ok();
    }
    row.rejected.push_back(
        {candidate.ref.plugin->manifest.id, tier_name(candidate.ref.component->tier), status.message()});
    last = status;
  }
  row.chosen.reset();
  return last;
}

Report::Slot& Resolution::State::slot(const std::string& name) {
  for (Report::Slot& slot : report.slots)
    if (slot.slot == name) return slot;
  return report.slots.emplace_back(Report::Slot{name, std::nullopt, {}});
}

Resolution::Resolution(std::unique_ptr<State> state) : state_(std::move(state)) {}
Resolution::Resolution(Resolution&&) noexcept = default;
Resolution& Resolution::operator=(Resolution&&) noexcept = default;
Resolution::~Resolution() = default;

namespace {

template <typename Table>
Component<Table> component_of(const Instance* instance) {
  if (!instance) return {};
  return {static_cast<const Table*>(instance->table()), instance->self()};
}

}  // namespace

uint32_t Resolution::tier() const { return state_->tier; }
const turbo_device_info& Resolution::device() const { return state_->device; }
Component<turbo_arch_pack> Resolution::arch_pack() const { return component_of<turbo_arch_pack>(state_->pack.get()); }
Component<turbo_sampler> Resolution::sampler() const { return component_of<turbo_sampler>(state_->sampler.get()); }
const TreeOps& Resolution::tree_ops() const { return state_->tree_ops; }
Component<turbo_drafter> Resolution::drafter() const { return component_of<turbo_drafter>(state_->drafter()); }

Component<turbo_weight_format> Resolution::weight_format(uint32_t type) const {
  const auto found = state_->registry.weight_formats.find(type);
  if (found == state_->registry.weight_formats.end()) return {};
  return {static_cast<const turbo_weight_format*>(found->second.table), found->second.instance};
}

Component<turbo_kv_codec> Resolution::kv_codec(uint32_t side) const {
  return side > TURBO_KV_SIDE_V ? Component<turbo_kv_codec>{}
                                : component_of<turbo_kv_codec>(state_->codecs[side].get());
}

Component<turbo_kv_codec> Resolution::spare_codec(uint32_t side, const std::string& name) const {
  if (side > TURBO_KV_SIDE_V) return {};
  const auto found = state_->spare_codecs[side].find(name);
  return component_of<turbo_kv_codec>(found == state_->spare_codecs[side].end() ? nullptr : found->second.get());
}

Status Resolution::use_codec(uint32_t side, uint32_t layer, const std::string& name) {
  if (side > TURBO_KV_SIDE_V) return error(Code::invalid_argument, "side: expected 0 or 1 but found {}", side);
  if (name.empty()) {
    state_->registry.layer_codecs[side].erase(layer);
    return Status::ok();
  }
  const Component<turbo_kv_codec> codec = spare_codec(side, name);
  if (!codec) return error(Code::not_found, "no KV codec '{}' was resolved for single layers", clean_text(name, 64));
  state_->registry.layer_codecs[side][layer] = {codec.table, codec.self};
  return Status::ok();
}

Status Resolution::with_codec(const std::string& name, uint32_t n_layers, const std::function<Status()>& make_pool) {
  Registry& registry = state_->registry;
  const std::map<uint32_t, Registry::Entry> before[2] = {registry.layer_codecs[0], registry.layer_codecs[1]};
  for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) {
    registry.layer_codecs[side].clear();
    for (uint32_t layer = 0; spare_codec(side, name) && layer < n_layers; ++layer) (void)use_codec(side, layer, name);
  }
  Status status = make_pool();
  for (const uint32_t side : {TURBO_KV_SIDE_K, TURBO_KV_SIDE_V}) registry.layer_codecs[side] = before[side];
  return status;
}

Status Resolution::start() {
  for (auto& [component, instance] : state_->formats) TURBO_RETURN_IF_ERROR(instance->start());
  for (Instance* instance :
       {state_->codecs[0].get(), state_->codecs[1].get(), state_->pack.get(), state_->sampler.get()})
    if (instance) TURBO_RETURN_IF_ERROR(instance->start());
  for (auto& side : state_->spare_codecs)
    for (auto& [name, instance] : side) TURBO_RETURN_IF_ERROR(instance->start());
  state_->choose_tree_ops();
  return Status::ok();
}

Status Resolution::open_drafter(const turbo_host_program* program) {
  state_->program = program;
  if (state_->drafter() || state_->drafters.empty()) return Status::ok();
  Status status;
  for (const std::unique_ptr<DrafterPart>& part : state_->drafters) {
    part->inner.clear();
    for (const size_t place : part->over)
      if (const DrafterPart& inner = *state_->drafters[place]; inner.instance)
        part->inner.push_back({sizeof(turbo_inner_drafter), 0, inner.name.c_str(), static_cast<const turbo_drafter*>(inner.instance->table()), inner.instance->self()});
    // What all of its inner drafters lack says more than that it has none.
    if (!part->over.empty() && part->inner.empty()) continue;
    status = state_->open_part(*part);
    if (status.is_ok() || part == state_->drafters.back()) continue;
    const std::string warning = fmt::format("the composed drafter goes without '{}': {}", clean_text(part->name, 64), status.message());
    state_->report.warnings.push_back(warning);
    const auto& log = state_->services.log;
    (log ? *log : *spdlog::default_logger_raw()).warn("{}", warning);
  }
  if (state_->drafter()) return Status::ok();
  close_drafter();
  state_->slot("drafter").chosen.reset();
  state_->report.warnings.push_back(fmt::format("no drafter: {}", status.message()));
  return status;
}

Status Resolution::try_drafter(const turbo_host_program* program) {
  state_->trial.reset(new State::Trial{HeldLog(state_->services.log), state_->services.log, state_->report});
  state_->services.log = state_->trial->log.logger();
  state_->program_asked->store(false);
  return open_drafter(program);
}

bool Resolution::drafter_asked_for_program() const { return state_->program_asked->load(); }

void Resolution::keep_drafter() {
  if (!state_->trial) return;
  state_->program = nullptr;
  state_->services.log = state_->trial->usual_log;
  state_->trial->log.pass_on();
  state_->trial.reset();
}

void Resolution::drop_drafter(bool keep_report) {
  if (!state_->trial) return;
  close_drafter();
  state_->program = nullptr;
  std::vector<std::string>& warnings = state_->report.warnings;
  for (const std::string& warning : state_->trial->log.warnings())
    if (std::find(warnings.begin(), warnings.end(), warning) == warnings.end()) warnings.push_back(warning);
  if (!keep_report) state_->report = std::move(state_->trial->report);
  state_->services.log = state_->trial->usual_log;
  state_->trial.reset();
}

void Resolution::close_drafter() {
  state_->stop_drafters();
  state_->destroy_drafters();
}

void Resolution::stop() { state_->stop_all(); }
const Report& Resolution::report() const { return state_->report; }
nlohmann::json Resolution::explain_json() const { return state_->report.json(); }
std::string Resolution::explain_text() const { return state_->report.text(); }
std::map<std::string, uint64_t> Resolution::memory_by_tag() const { return state_->services.memory->bytes_by_tag(); }

}  // namespace turbo::loader
