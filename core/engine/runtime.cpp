#include "engine/runtime.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <mutex>
#include <span>

#include "base/digest.h"
#include "base/human.h"
#include "base/machine.h"
#include "engine/draft_file.h"
#include "engine/host_model.h"
#include "engine/host_program.h"
#include "engine/kv_plan.h"
#include "engine/kv_setup.h"
#include "engine/plugin_metrics.h"
#include "engine/resolve.h"
#include "engine/tokenizer_source.h"
#include "loader/cache_folder.h"
#include "loader/text.h"
#include "profile/keys.h"

namespace turbo::engine {
namespace {

constexpr uint32_t kDefaultContextCap = 32768;  // positions, when the profile names no context
constexpr uint32_t kMostLayers = 1024;          // of any model

Result<uint32_t> choose_context(const profile::Profile& profile, const model::ModelConfig& config) {
  const uint32_t wanted = profile.model.context;
  if (wanted == 0) return std::min(config.context_length, kDefaultContextCap);
  if (wanted > config.context_length)
    spdlog::warn("context {} is longer than the {} positions the model was trained for", wanted, config.context_length);
  return wanted;
}

// A relative path lies beside the profile; one of the command line where the program was started.
std::filesystem::path beside_profile(const std::filesystem::path& path, const profile::Profile& profile) {
  const std::filesystem::path beside = profile.source.parent_path() / path;
  std::error_code failed;
  return std::filesystem::exists(beside, failed) ? beside : path;
}

kv::CacheShape cache_shape(const model::ModelConfig& config, uint32_t n_blocks, uint32_t max_sequences, uint32_t exact_rows = 0) {
  return {config.n_layers, config.n_kv_heads, config.head_dim_k, config.head_dim_v, n_blocks, max_sequences, exact_rows};
}


}  // namespace

nlohmann::ordered_json to_json(const MemoryReport& memory) {
  return {{"weights_bytes", memory.weights_bytes},
          {"kv_bytes_per_token", memory.kv_bytes_per_token},
          {"kv_pool_bytes", memory.kv_pool_bytes},
          {"draft_weights_bytes", memory.draft_weights_bytes},
          {"draft_kv_pool_bytes", memory.draft_kv_pool_bytes},
          {"workspace_bytes", memory.workspace_bytes},
          {"device_bytes", memory.device_bytes},
          {"peak_rss_bytes", memory.peak_rss_bytes}};
}

// Members are in order of construction; destruction runs backwards: engine, drafter's host, cache, weights, plugins.
struct Runtime::Impl {
  profile::Profile profile;
  std::unique_ptr<model::ModelFile> file;
  model::ModelConfig config;
  kv::CodecPolicy kv_policy;  // taken out of profile.kv.options
  KvSetup kv_setup;           // of the profile alone until weights are there to be looked at
  turbo_kv_bytes kv_bytes{};  // with that
  std::string name;
  uint32_t context = 0;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  Status tokenizer_status;
  std::optional<text::ChatTemplate> chat_template;
  Status template_status;
  DraftFile draft;  // no file: the drafter has no model of its own, or opens it itself
  std::unique_ptr<HostModel> host_model;
  PluginMetrics plugin_metrics;
  std::shared_ptr<loader::MemoryTags> memory_tags = std::make_shared<loader::MemoryTags>();
  std::unique_ptr<loader::Catalog> catalog;
  std::unique_ptr<loader::Resolution> resolution;
  PlanReport report;
  std::unique_ptr<model::WeightSet> weights;
  std::unique_ptr<kv::KvCache> cache;
  std::unique_ptr<HostProgram> host_program;
  std::unique_ptr<Engine> engine;
  uint64_t load_ms = 0;
  std::mutex fingerprint_mutex;
  std::string fingerprint;  // of cached positions; made when first asked for; guarded by fingerprint_mutex
  std::optional<Sha256::Value> digest;  // of the model's files; likewise

  LoadStage stage = LoadStage::settings;

  // The file and what it says; then the plugins that can serve it.
  Status open_model(const profile::Profile& wanted);
  Status resolve();
  Result<KvTokenBytes> token_bytes();
  Status plan_cache();
  Room room(uint64_t weight_bytes) const;
  uint64_t workspace_bytes() const;
  uint64_t file_weight_bytes() const;
  Status check_device_memory(uint64_t weight_bytes) const;
  std::string describe() const {
    return fmt::format("profile: {}\nmodel: {} ({}, {:.2f} M parameters, context {})\n", profile.source.string(),
                       profile.model.path.string(), config.architecture, static_cast<double>(config.n_parameters) / 1e6, context);
  }
  Status open_text();
  Status check_drafters();
  Status open_draft();
  Result<uint64_t> draft_block_bytes();
  void report_draft(uint64_t block_bytes);
  DraftSettings draft_settings(const DraftModelLimits& limits);
  Status judge_drafter(const Status& opened, const HostProgram& program);
  Status try_drafter(bool to_keep);
  Status check_pool();
  Status open_drafter(const DraftModelLimits& limits);
  Status load_weights(const Progress& progress);
  Status start_engine();
  Result<Sha256::Value> model_digest();
  Result<std::string> cache_fingerprint();
  uint32_t step_rows() const { return static_cast<uint32_t>(std::max(1, profile.engine.max_step_tokens)); }
  uint32_t prefill_chunk() const {
    if (profile.engine.prefill_chunk > 0) return static_cast<uint32_t>(profile.engine.prefill_chunk);
    // A GPU is not full with fewer rows; in exact prefill a chunk holds up every stream, so it stays short.
    return std::min(step_rows(), resolution->tier() == TURBO_TIER_HIP && !kv_policy.exact_prefill ? 512u : 128u);
  }
  uint32_t exact_rows() const { return kv_policy.exact_prefill ? step_rows() : 0; }
  model::Pack pack() const { return {resolution->arch_pack().table, resolution->arch_pack().self}; }
  ~Impl() {
    engine.reset();
    // The drafter may hold plans, weights and pools of the pack: it goes before them.
    if (resolution) resolution->close_drafter();
    host_program.reset();
    cache.reset();
    weights.reset();
  }
};

Status Runtime::Impl::open_text() {
  Result<text::TokenizerData> data = read_tokenizer_data(*file);
  if (!data) {
    // Ids still work without a tokenizer; one that is there but broken is the file's fault.
    if (data.status().code() != Code::not_found) return data.status();
    tokenizer_status = data.status();
    template_status = data.status();
    return Status::ok();
  }
  TURBO_ASSIGN(tokenizer, text::Tokenizer::create(std::move(*data)));
  if (static_cast<uint32_t>(tokenizer->vocab_size()) > config.vocab_size)
    return error(Code::corrupt_input, "{}: the tokenizer has {} tokens but the model {} rows", file->name(),
                 tokenizer->vocab_size(), config.vocab_size);
  if (tokenizer->chat_template().empty()) {
    template_status = Status(Code::not_found, file->name() + ": the model carries no chat template", "use plain completion");
    return Status::ok();
  }
  Result<text::ChatTemplate> parsed = text::ChatTemplate::parse(tokenizer->chat_template());
  if (parsed) chat_template = std::move(*parsed);
  else template_status = parsed.status();
  return Status::ok();
}

Status Runtime::Impl::open_model(const profile::Profile& wanted) {
  profile = wanted;
  stage = LoadStage::settings;
  TURBO_ASSIGN(kv_policy, kv::take_policy(profile.kv.options, profile.kv.v));
  if (!kv_policy.center_file.empty()) kv_policy.center_file = beside_profile(kv_policy.center_file, profile);
  TURBO_RETURN_IF_ERROR(kv::refuse_policy_keys(profile.kv.k_options, "kv.k_options"));
  TURBO_RETURN_IF_ERROR(kv::refuse_policy_keys(profile.kv.v_options, "kv.v_options"));
  stage = LoadStage::model;
  if (profile.model.path.empty())
    return Status(Code::not_found, "no model is named", "give --model FILE or set model.path in the profile");
  TURBO_ASSIGN(file, model::ModelFile::open(profile.model.path));
  TURBO_ASSIGN(config, model::read_config(*file));
  TURBO_ASSIGN(context, choose_context(profile, config));
  name = profile.model.name.empty() ? profile.model.path.stem().string() : profile.model.name;
  TURBO_RETURN_IF_ERROR(open_text());
  TURBO_RETURN_IF_ERROR(check_drafters());
  return open_draft();
}

// That there is no such drafter is said before what it would need.
Status Runtime::Impl::check_drafters() {
  loader::Request names;
  names.plugin_paths = profile.plugins.paths;
  names.allow_unsafe = profile.plugins.allow_unsafe;
  if (profile.drafter.name != "off") add_drafters(profile, config.n_layers, names);
  stage = LoadStage::plugins;
  TURBO_ASSIGN(loader::Catalog scanned, loader::Catalog::scan(loader::catalog_settings(names)));
  catalog = std::make_unique<loader::Catalog>(std::move(scanned));
  TURBO_RETURN_IF_ERROR(loader::check_drafters(names, *catalog));
  stage = LoadStage::settings;
  return profile::check_drafter_weights(profile.drafter);
}

// A draft model that cannot serve is known before anything is loaded.
Status Runtime::Impl::open_draft() {
  stage = LoadStage::model;
  if (!profile::find_member(profile.drafter, &profile::DrafterFacts::whole_model)) return Status::ok();
  TURBO_ASSIGN(draft, DraftFile::open(profile.drafter.model, tokenizer.get()));
  if (draft.config.context_length < context)
    spdlog::info("draft model {}: made for {} positions; sequences that grow longer go on without drafts", draft.file->name(), draft.config.context_length);
  return Status::ok();
}

Status Runtime::Impl::resolve() {
  stage = LoadStage::plugins;
  host_model = std::make_unique<HostModel>(*file, config, tokenizer.get(), context);
  const loader::Request request = make_request(profile, kv_policy, *file, draft.file.get(), host_model->facts());
  loader::Services services;
  services.metrics = &plugin_metrics;
  services.model = host_model.get();
  services.memory = memory_tags;
  loader::Report losses;
  Result<loader::Resolution> resolved = loader::resolve(request, *catalog, services, &losses);
  if (!resolved) {
    report = {plan_json(profile, *file, config, losses), describe() + losses.text()};
    return resolved.status();
  }
  resolution = std::make_unique<loader::Resolution>(std::move(*resolved));
  report = {plan_json(profile, *file, config, resolution->report()), describe() + resolution->explain_text()};
  // Whether the codecs take this model, and are there to promote to: found now rather than after reading weights.
  stage = LoadStage::settings;
  TURBO_ASSIGN(kv_setup, set_up_codecs(*resolution, kv_policy, config));
  TURBO_ASSIGN(kv_bytes, kv::KvCache::bytes(pack().api, pack().self, cache_shape(config, 1, 1)));
  return Status::ok();
}

Result<KvTokenBytes> Runtime::Impl::token_bytes() {
  KvTokenBytes token{kv_bytes.block_bytes / kv::kBlock, kv_setup.may_promote, kv_setup.promote_k, kv_bytes.block_bytes / kv::kBlock, open_bytes_per_sequence(kv_bytes)};
  if (!token.may_promote) return token;
  TURBO_RETURN_IF_ERROR(promote_every_layer(*resolution, kv_policy, config).status());
  TURBO_ASSIGN(const turbo_kv_bytes most, kv::KvCache::bytes(pack().api, pack().self, cache_shape(config, 1, 1)));
  TURBO_RETURN_IF_ERROR(set_up_codecs(*resolution, kv_policy, config).status());
  token.bytes_promoted = most.block_bytes / kv::kBlock;
  return token;
}

// What the pool can come from once so many bytes of weights are loaded that are not yet.
Room Runtime::Impl::room(uint64_t weight_bytes) const {
  const uint64_t total = total_memory_bytes();
  Room room{available_memory_bytes(), total > 0 ? total : UINT64_MAX};
  if (resolution->tier() != TURBO_TIER_CPU) {
    const uint64_t device = resolution->device().memory_bytes;
    const uint64_t taken = weight_bytes + workspace_bytes();
    room.free = room.total = device - std::min(device, taken);
    room.share = 90;
  } else {
    room.free -= std::min(room.free, weight_bytes);
  }
  return room;
}

uint64_t Runtime::Impl::file_weight_bytes() const {
  uint64_t bytes = draft.file ? draft.tensor_bytes() : 0;
  for (const model::Tensor& tensor : file->tensors()) bytes += tensor.bytes;
  return bytes;
}

// Of the plans of all row buckets together, about: each holds a few rows of every width, and the logits.
uint64_t Runtime::Impl::workspace_bytes() const {
  const uint64_t rows = uint64_t{2} * std::bit_ceil(step_rows()), heads = uint64_t{config.n_heads} * (config.head_dim_k + config.head_dim_v);
  const uint64_t logit_rows = uint64_t{2} * std::bit_ceil(static_cast<uint32_t>(std::max(1, profile.engine.max_running)));
  return (rows * (3 * uint64_t{config.n_embd} + heads + 2 * uint64_t{config.n_ff}) + logit_rows * config.vocab_size) * sizeof(float) + (uint64_t{64} << 20);
}

// The device must hold the weights and the plans before any cache; told before the weights are read.
Status Runtime::Impl::check_device_memory(uint64_t weight_bytes) const {
  if (resolution->tier() == TURBO_TIER_CPU) return Status::ok();
  const uint64_t device = resolution->device().memory_bytes, workspace = workspace_bytes();
  if (device > workspace && device - workspace > weight_bytes) return Status::ok();
  return error(Code::resource_exhausted, "the model does not fit: weights {} and workspace {}, but the device has {}", human_bytes(weight_bytes),
               human_bytes(workspace), human_bytes(device))
      .with_hint("use a smaller model, lower engine.max_step_tokens, or put another tier first in `tiers`");
}

// What the pool would be, added to the report. Layers that the check at load would promote are not known yet.
Status Runtime::Impl::plan_cache() {
  stage = LoadStage::settings;
  TURBO_ASSIGN(const KvTokenBytes token, token_bytes());
  const uint64_t weight_bytes = file_weight_bytes();
  TURBO_RETURN_IF_ERROR(check_device_memory(weight_bytes));
  TURBO_ASSIGN(const uint64_t draft_bytes, draft_block_bytes());
  KvPlan plan = plan_kv(profile, config, kv_bytes, token, draft_bytes, context, room(weight_bytes), exact_rows());
  plan.notes.insert(plan.notes.begin(), kv_setup.notes.begin(), kv_setup.notes.end());
  report.json["kv"] = to_json(plan);
  report.text += to_text(plan);
  report_draft(draft_bytes);
  return check_pool();
}

// A size that the profile asks for and that cannot be is known before anything is read. What is too little on this machine
// at this moment is not the profile's fault, and known for sure only when weights are there.
Status Runtime::Impl::check_pool() {
  uint64_t weight_bytes = 0;
  for (const model::Tensor& tensor : file->tensors()) weight_bytes += tensor.bytes;
  if (draft.file) weight_bytes += draft.tensor_bytes();
  TURBO_ASSIGN(const uint64_t draft_bytes, draft_block_bytes());
  const Result<PoolSize> pool = choose_pool(profile, context, with_draft_cache(kv_bytes, draft_bytes), room(weight_bytes), exact_rows());
  if (pool || pool.status().code() != Code::invalid_argument) return Status::ok();
  stage = LoadStage::settings;
  return pool.status();
}

// Of one block of the cache of a draft model, or of the target's layers that draft; 0 without.
Result<uint64_t> Runtime::Impl::draft_block_bytes() {
  model::ModelConfig shape = draft.file ? draft.config : config;
  if (!draft.file) shape.n_layers = std::min(config.n_layers, self_draft_layers(profile, config.n_layers));
  if (shape.n_layers == 0) return 0;
  uint64_t block_bytes = 0;
  TURBO_RETURN_IF_ERROR(resolution->with_codec("f16", shape.n_layers, [&]() -> Status {
    TURBO_ASSIGN(const turbo_kv_bytes bytes, kv::KvCache::bytes(pack().api, pack().self, cache_shape(shape, 1, 1)));
    block_bytes = bytes.block_bytes;
    return Status::ok();
  }));
  return block_bytes;
}

void Runtime::Impl::report_draft(uint64_t block_bytes) {
  if (block_bytes == 0) return;
  const uint64_t per_token = block_bytes / kv::kBlock;
  if (!draft.file) {
    const uint32_t layers = self_draft_layers(profile, config.n_layers);
    report.json["draft_model"] = {{"layers", layers}, {"weights_bytes", 0}, {"kv_bytes_per_token", per_token}};
    report.text += fmt::format("draft model: the first {} layers of the target: cache {} bytes a token\n", layers, per_token);
    return;
  }
  report.json["draft_model"] = {{"path", draft.file->path().string()},
                                {"architecture", draft.config.architecture},
                                {"parameters", draft.config.n_parameters},
                                {"weights_bytes", draft.tensor_bytes()},
                                {"kv_bytes_per_token", per_token},
                                {"context", std::min(context, draft.config.context_length)},
                                {"shared_vocab", draft.shared_vocab}};
  report.text += fmt::format("draft model: {} ({}, {:.2f} M parameters): weights {}, cache {} bytes a token\n", draft.file->path().string(),
                             draft.config.architecture, static_cast<double>(draft.config.n_parameters) / 1e6, human_bytes(draft.tensor_bytes()), per_token);
}

Status Runtime::Impl::load_weights(const Progress& progress) {
  stage = LoadStage::weights;
  TURBO_RETURN_IF_ERROR(check_device_memory(file_weight_bytes()));
  TURBO_RETURN_IF_ERROR(resolution->start());
  weights = std::make_unique<model::WeightSet>(pack());
  TURBO_RETURN_IF_ERROR(weights->load(*file, config, [&](uint64_t done, uint64_t total) {
    if (progress) progress("weights", total ? static_cast<double>(done) / static_cast<double>(total) : 1.0);
  }));
  return file->verify_unchanged();
}

DraftSettings Runtime::Impl::draft_settings(const DraftModelLimits& limits) {
  DraftSettings settings;
  settings.target = &config;
  settings.path = profile.drafter.model;
  settings.file = draft.file ? &draft : nullptr;
  settings.tokenizer = tokenizer.get();
  settings.limits = limits;
  settings.exact_codecs = [this](const std::function<Status()>& make_pool) { return resolution->with_codec("f16", kMostLayers, make_pool); };
  return settings;
}

// Whatever keeps a drafter from its work costs speed only, but a model that the profile names must be right, and a setting
// is its owner's to mend. Ok: the run goes on, with or without it.
Status Runtime::Impl::judge_drafter(const Status& opened, const HostProgram& program) {
  if (opened.is_ok()) return opened;
  if (!profile.drafter.model.empty() && !program.model_status().is_ok()) {
    stage = LoadStage::weights;
    return program.model_status();
  }
  if (opened.code() != Code::invalid_argument) return Status::ok();
  stage = LoadStage::settings;
  return opened;
}

// Before weights are read, so that `turbo plan` refuses what loading would, and loading does not read them in vain. A drafter
// that works without programs is kept: it has read its files and needs not do so again.
Status Runtime::Impl::try_drafter(bool to_keep) {
  if (profile.drafter.name == "off") return Status::ok();
  stage = LoadStage::weights;
  TURBO_RETURN_IF_ERROR(resolution->start());
  HostProgram planned(pack());
  planned.offer_models(draft_settings({context, 1, 1}));
  const Status opened = resolution->try_drafter(planned.table());
  const Status judged = planned.lacked_target() ? Status::ok() : judge_drafter(opened, planned);
  if (to_keep && opened.is_ok() && !resolution->drafter_asked_for_program()) resolution->keep_drafter();
  else resolution->drop_drafter(!to_keep && !planned.lacked_target());
  report = {plan_json(profile, *file, config, resolution->report()), describe() + resolution->explain_text()};
  return judged;
}

Status Runtime::Impl::open_drafter(const DraftModelLimits& limits) {
  host_program = std::make_unique<HostProgram>(pack(), *weights, *cache);
  host_program->offer_models(draft_settings(limits));
  const Status opened = resolution->open_drafter(host_program->table());
  TURBO_RETURN_IF_ERROR(judge_drafter(opened, *host_program));
  if (!opened.is_ok()) spdlog::warn("running without a drafter: {}", opened.message());
  return Status::ok();
}

Status Runtime::Impl::start_engine() {
  stage = LoadStage::settings;
  const KvLook look{*weights, tokenizer.get(), profile.compute.activations, [this] { return model_digest(); }, loader::cache_folder("keys")};
  TURBO_ASSIGN(kv_setup, set_up_codecs(*resolution, kv_policy, config, look));
  stage = LoadStage::engine;
  for (const std::string& note : kv_setup.notes) spdlog::info("KV cache: {}", note);
  TURBO_ASSIGN(kv_bytes, kv::KvCache::bytes(pack().api, pack().self, cache_shape(config, 1, 1)));
  // A draft model's cache has as many blocks as the target's: both come out of one budget.
  TURBO_ASSIGN(const uint64_t draft_bytes, draft_block_bytes());
  // The target's weights on the CPU tier are part of what is not free any more.
  const uint64_t pending = (resolution->tier() == TURBO_TIER_CPU ? 0 : weights->resident_bytes()) + (draft.file ? draft.tensor_bytes() : 0);
  stage = LoadStage::settings;
  TURBO_ASSIGN(const PoolSize pool, choose_pool(profile, context, with_draft_cache(kv_bytes, draft_bytes), room(pending), exact_rows()));
  stage = LoadStage::engine;
  for (const std::string& info : pool.infos) spdlog::info("{}", info);
  for (const std::string& warning : pool.warnings) spdlog::warn("{}", warning);
  const uint32_t max_running = pool.max_running;
  context = static_cast<uint32_t>(std::min<uint64_t>(context, uint64_t{pool.n_blocks} * kv::kBlock));
  const kv::CacheShape shape = cache_shape(config, pool.n_blocks, max_running, exact_rows());
  TURBO_ASSIGN(cache, kv::KvCache::create(pack().api, pack().self, shape));

  TURBO_RETURN_IF_ERROR(open_drafter({context, pool.n_blocks, max_running}));

  EngineParts parts;
  parts.pack = pack();
  parts.config = &config;
  parts.weights = weights.get();
  TURBO_ASSIGN(parts.build_step, model::find_family(config.architecture));
  parts.cache = cache.get();
  parts.sampler = resolution->sampler().table;
  parts.sampler_self = resolution->sampler().self;
  parts.drafter = resolution->drafter().table;
  parts.drafter_self = resolution->drafter().self;
  parts.draft_slots = static_cast<uint32_t>(std::max(0, profile.drafter.draft_tokens));
  parts.adaptive_drafts = profile.drafter.adaptive;
  parts.drafter_name = profile.drafter.name;
  parts.host_program = host_program.get();
  parts.cache_fingerprint = [this] { return cache_fingerprint(); };
  EngineLimits limits;
  limits.max_running = max_running;
  limits.max_queue = static_cast<uint32_t>(std::max(1, profile.server.max_queue));
  limits.max_step_rows = step_rows();
  limits.prefill_chunk = prefill_chunk();
  limits.context = context;
  limits.step_ms = static_cast<uint32_t>(std::min<uint64_t>(profile.engine.step_ms, UINT32_MAX));
  limits.prefix_cache = profile.engine.prefix_cache;
  TURBO_ASSIGN(engine, Engine::start(parts, limits));
  return Status::ok();
}

// Reads every byte, so only when something is to be found by it.
Result<Sha256::Value> Runtime::Impl::model_digest() {
  std::lock_guard lock(fingerprint_mutex);
  if (digest) return *digest;
  // A file that was cut short since must not be read through its mapping.
  TURBO_RETURN_IF_ERROR(file->verify_unchanged());
  Sha256 sum;
  sum.add_text("turbo model 1");
  sum.add_text(file->config_json());
  for (const model::MappedFile& part : file->files()) {
    const uint64_t size = part.bytes().size();
    sum.add(std::as_bytes(std::span(&size, 1))).add(part.bytes());
    part.drop_pages(part.bytes().data(), part.bytes().size());
  }
  digest = sum.finish();
  return *digest;
}

// Everything that the bits of a cached position depend on: the model's files, the codecs, precision and tier.
Result<std::string> Runtime::Impl::cache_fingerprint() {
  TURBO_ASSIGN(const Sha256::Value model, model_digest());
  std::lock_guard lock(fingerprint_mutex);
  if (!fingerprint.empty()) return fingerprint;
  Sha256 sum;
  sum.add_text("turbo cache 3");
  sum.add(model);
  sum.add_text(profile.kv.k);
  sum.add_text(profile.kv.v);
  sum.add_text(kv_setup.fingerprint);
  for (const auto* options : {&profile.kv.options, &profile.kv.k_options, &profile.kv.v_options}) {
    sum.add_text(std::to_string(options->size()));
    for (const auto& [name, value] : *options) {
      sum.add_text(name);
      sum.add_text(value);
    }
  }
  sum.add_text(profile.compute.activations);
  sum.add_text(loader::tier_name(resolution->tier()));
  fingerprint = Sha256::hex(sum.finish());
  return fingerprint;
}

Result<PlanReport> plan(const profile::Profile& profile, LoadStage* failed_at, PlanReport* losses) {
  Runtime::Impl impl;
  Status status = impl.open_model(profile);
  if (status.is_ok()) status = impl.resolve();
  if (status.is_ok()) status = impl.try_drafter(false);
  if (status.is_ok()) status = impl.plan_cache();
  if (status.is_ok()) return impl.report;
  if (failed_at) *failed_at = impl.stage;
  if (losses) *losses = impl.report;
  return status;
}

Result<KvTokenBytes> kv_bytes_per_token(const profile::Profile& profile, LoadStage* failed_at) {
  Runtime::Impl impl;
  Status status = impl.open_model(profile);
  if (status.is_ok()) status = impl.resolve();
  if (failed_at) *failed_at = impl.stage;
  TURBO_RETURN_IF_ERROR(status);
  return impl.token_bytes();
}

Runtime::Runtime(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Runtime::~Runtime() = default;

Result<std::unique_ptr<Runtime>> Runtime::load(const profile::Profile& profile, const Progress& progress, LoadStage* failed_at) {
  const auto begin = std::chrono::steady_clock::now();
  auto impl = std::make_unique<Impl>();
  Status status = impl->open_model(profile);
  if (status.is_ok()) status = impl->resolve();
  if (status.is_ok()) status = impl->check_pool();
  if (status.is_ok()) {
    for (const std::string& warning : impl->resolution->report().warnings) spdlog::warn("{}", warning);
    status = impl->try_drafter(true);
  }
  if (status.is_ok()) status = impl->load_weights(progress);
  if (status.is_ok()) status = impl->start_engine();
  if (!status.is_ok()) {
    if (failed_at) *failed_at = impl->stage;
    return status;
  }
  impl->load_ms = static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin).count());
  return std::unique_ptr<Runtime>(new Runtime(std::move(impl)));
}

const profile::Profile& Runtime::profile() const { return impl_->profile; }
const model::ModelFile& Runtime::file() const { return *impl_->file; }
const model::ModelConfig& Runtime::config() const { return impl_->config; }
const std::string& Runtime::model_name() const { return impl_->name; }
uint32_t Runtime::context() const { return impl_->context; }
Engine& Runtime::engine() { return *impl_->engine; }
HostProgram& Runtime::host_program() { return *impl_->host_program; }
const PlanReport& Runtime::resolved() const { return impl_->report; }
uint64_t Runtime::load_ms() const { return impl_->load_ms; }

Result<const text::Tokenizer*> Runtime::tokenizer() const {
  if (!impl_->tokenizer) return impl_->tokenizer_status;
  return impl_->tokenizer.get();
}

Result<const text::ChatTemplate*> Runtime::chat_template() const {
  if (!impl_->chat_template) return impl_->template_status;
  return &*impl_->chat_template;
}

Sampling Runtime::default_sampling() const {
  Sampling sampling;
  const model::SamplingDefaults& model = impl_->config.sampling;
  sampling.temperature = model.temperature.value_or(sampling.temperature);
  sampling.top_p = model.top_p.value_or(sampling.top_p);
  sampling.min_p = model.min_p.value_or(sampling.min_p);
  sampling.repetition_penalty = model.repeat_penalty.value_or(sampling.repetition_penalty);
  sampling.top_k = static_cast<int32_t>(model.top_k.value_or(0));
  const profile::Profile::Sampler& own = impl_->profile.sampler;
  const auto take = [](float& field, const std::optional<double>& value) { field = value ? static_cast<float>(*value) : field; };
  take(sampling.temperature, own.temperature);
  take(sampling.top_p, own.top_p);
  take(sampling.min_p, own.min_p);
  take(sampling.typical_p, own.typical_p);
  take(sampling.repetition_penalty, own.repetition_penalty);
  take(sampling.presence_penalty, own.presence_penalty);
  take(sampling.frequency_penalty, own.frequency_penalty);
  if (own.top_k) sampling.top_k = static_cast<int32_t>(*own.top_k);
  if (own.seed) sampling.seed = static_cast<uint64_t>(*own.seed);
  return sampling;
}

std::vector<prometheus::MetricFamily> Runtime::metrics() const {
  std::vector<prometheus::MetricFamily> families = impl_->engine->metrics().registry->Collect();
  for (prometheus::MetricFamily& family : impl_->plugin_metrics.collect()) families.push_back(std::move(family));
  return families;
}

MemoryReport Runtime::memory() const {
  MemoryReport report;
  report.weights_bytes = impl_->weights->resident_bytes();
  report.kv_bytes_per_token = impl_->cache->bytes_per_token();
  report.kv_pool_bytes = impl_->cache->pool_bytes();
  report.draft_weights_bytes = impl_->host_program->draft_weights_bytes();
  report.draft_kv_pool_bytes = impl_->host_program->draft_kv_pool_bytes();
  const auto tags = impl_->memory_tags->bytes_by_tag();
  if (const auto found = tags.find("workspace"); found != tags.end()) report.workspace_bytes = found->second;
  if (impl_->resolution->tier() != TURBO_TIER_CPU) report.device_bytes = impl_->resolution->device().memory_bytes;
  report.peak_rss_bytes = peak_rss_bytes();
  return report;
}

}  // namespace turbo::engine
