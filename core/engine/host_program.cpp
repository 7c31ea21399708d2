#include "engine/host_program.h"

#include <turbo/plugin.hpp>

#include <algorithm>

namespace turbo::engine {
namespace {

turbo_status answer(const Status& status, turbo_error* error) {
  if (status.is_ok()) return TURBO_OK;
  return fill_error(error, static_cast<turbo_status>(status.code()), status.message().c_str(), status.hint().c_str());
}

}  // namespace

HostProgram::HostProgram(model::Pack pack, const model::WeightSet* weights, const kv::KvCache* cache)
    : pack_(pack), weights_(weights), cache_(cache) {
  table_.struct_size = sizeof table_;
  table_.ctx = this;
  table_.pack = pack.api;
  table_.pack_instance = pack.self;
  fill_target_calls();
  fill_model_calls();
}

HostProgram::~HostProgram() {
  for (turbo_kv_pool* pool : pools_) pack_.api->kv_free(pack_.self, pool);
}

turbo_status HostProgram::lacks_target(turbo_error* error) {
  lacked_target_ = true;
  return fill_error(error, TURBO_UNSUPPORTED, "the target is not loaded yet");
}

void HostProgram::fill_target_calls() {
  table_.target_weight = [](void* ctx, const char* name, const turbo_weight** weight, turbo_error* error) -> turbo_status {
    auto& self = *static_cast<HostProgram*>(ctx);
    *weight = nullptr;
    if (!self.weights_) return self.lacks_target(error);
    *weight = self.weights_->find(name ? name : "");
    return *weight ? TURBO_OK : fill_error(error, TURBO_NOT_FOUND, "the target has no weight of that name");
  };
  table_.kv_create = [](void* ctx, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim_k, uint32_t head_dim_v,
                        turbo_kv_pool** pool, turbo_error* error) -> turbo_status {
    auto& self = *static_cast<HostProgram*>(ctx);
    if (!self.cache_) return self.lacks_target(error);
    const turbo_kv_pool_desc desc{sizeof desc, n_layers, n_kv_heads, head_dim_k, head_dim_v, self.cache_->n_blocks(),
                                  self.cache_->n_open_blocks()};
    const turbo_status status = self.pack_.api->kv_create(self.pack_.self, &desc, pool, error);
    return status == TURBO_OK ? guarded(error, [&] { self.pools_.push_back(*pool); }) : status;
  };
  table_.block_table = [](void* ctx, uint32_t sequence, const int32_t** blocks, const int32_t** open_blocks,
                          uint32_t* n) -> turbo_status {
    auto& self = *static_cast<HostProgram*>(ctx);
    const sched::Sequence* found = self.find_sequence ? self.find_sequence(sequence) : nullptr;
    if (!found) return TURBO_NOT_FOUND;
    *blocks = found->blocks.packed.data();
    *open_blocks = found->blocks.open.data();
    *n = static_cast<uint32_t>(found->blocks.packed.size());
    return TURBO_OK;
  };
}

void HostProgram::fill_model_calls() {
  table_.model_open = [](void* ctx, const turbo_draft_source* source, turbo_draft_model** model, turbo_draft_facts* facts,
                         turbo_error* error) -> turbo_status {
    return guarded(error, [&]() -> turbo_status {
      if (!source || !TURBO_HAS(source, path) || !model || !facts || !TURBO_HAS(facts, kv_pool_bytes))
        return fill_error(error, TURBO_INVALID_ARGUMENT, "model_open: the source, model or facts are missing");
      turbo_draft_facts found{};
      const Status opened = static_cast<HostProgram*>(ctx)->open(*source, *model, found);
      if (opened.is_ok()) detail::fill_out(facts, [&](turbo_draft_facts& out) { out = found; });
      return answer(opened, error);
    });
  };
  table_.model_close = [](void* ctx, turbo_draft_model* model) {
    std::erase_if(static_cast<HostProgram*>(ctx)->models_, [&](const auto& own) { return own.get() == reinterpret_cast<DraftModel*>(model); });
  };
  table_.model_run = [](void* ctx, turbo_draft_model* model, turbo_draft_group* groups, uint32_t n, turbo_view* logits,
                        turbo_error* error) -> turbo_status {
    return guarded(error, [&]() -> turbo_status {
      DraftModel* found = static_cast<HostProgram*>(ctx)->find(model);
      if (!found || (n > 0 && !groups) || !logits) return fill_error(error, TURBO_INVALID_ARGUMENT, "model_run: no such model, or no groups");
      std::vector<turbo_draft_group*> all(n);
      for (uint32_t i = 0; i < n; ++i) all[i] = &detail::element(groups, i);
      return answer(found->run(all, *logits), error);
    });
  };
  table_.model_keep = [](void* ctx, turbo_draft_model* model, uint32_t sequence, const uint32_t* nodes, uint32_t n, turbo_error* error) -> turbo_status {
    return guarded(error, [&]() -> turbo_status {
      DraftModel* found = static_cast<HostProgram*>(ctx)->find(model);
      if (!found || (n > 0 && !nodes)) return fill_error(error, TURBO_INVALID_ARGUMENT, "model_keep: no such model, or no nodes");
      return answer(found->keep(sequence, {nodes, n}), error);
    });
  };
  table_.model_drop = [](void* ctx, turbo_draft_model* model, uint32_t sequence) {
    if (DraftModel* found = static_cast<HostProgram*>(ctx)->find(model)) found->drop(sequence);
  };
}

DraftModel* HostProgram::find(const turbo_draft_model* handle) const {
  for (const auto& model : models_)
    if (model.get() == reinterpret_cast<const DraftModel*>(handle)) return model.get();
  return nullptr;
}

Result<HostProgram::Found> HostProgram::find_source(const turbo_draft_source& source) {
  Found found{nullptr, *settings_.target, settings_.target->vocab_size};
  if (source.path) {
    if (settings_.path.empty() || source.path != settings_.path)
      return Status(Code::invalid_argument, "a draft model is read from the file that drafter.model names, and from no other",
                    "set drafter.model to the file that the drafter is to read");
    if (!settings_.file) {
      TURBO_ASSIGN(opened_, DraftFile::open(settings_.path, settings_.tokenizer));
      settings_.file = &opened_;
    }
    found = {settings_.file, settings_.file->config, settings_.file->shared_vocab};
  }
  if (source.n_layers > found.config.n_layers)
    return error(Code::invalid_argument, "the draft model has {} layers, not {}", found.config.n_layers, source.n_layers)
        .with_hint("ask for fewer layers");
  if (source.n_layers > 0) found.config.n_layers = source.n_layers;
  return found;
}

Result<std::unique_ptr<DraftModel>> HostProgram::make(const Found& found) {
  if (!found.file) return DraftModel::borrow(pack_, found.config, *weights_, settings_.limits, settings_.exact_codecs);
  return DraftModel::load(pack_, *found.file, found.config, settings_.limits, settings_.exact_codecs);
}

Status HostProgram::open(const turbo_draft_source& source, turbo_draft_model*& model, turbo_draft_facts& facts) {
  if (!settings_.target) return Status(Code::unsupported, "the host offers no draft models");
  const Result<Found> found = find_source(source);
  model_status_ = found.status();
  TURBO_RETURN_IF_ERROR(model_status_);
  facts = DraftModel::facts(found->config, found->shared_vocab, settings_.limits);
  if (!weights_) {
    model = reinterpret_cast<turbo_draft_model*>(this);  // the handle of none: nothing can be run with it
    facts.weights_bytes = found->file ? found->file->tensor_bytes() : 0;
    return Status::ok();
  }
  Result<std::unique_ptr<DraftModel>> made = make(*found);
  model_status_ = made.status();
  TURBO_RETURN_IF_ERROR(model_status_);
  facts.weights_bytes = (*made)->weights_bytes();
  facts.kv_pool_bytes = (*made)->kv_pool_bytes();
  (*made)->find_salt = [this](uint32_t id) -> std::optional<std::string> {
    const sched::Sequence* sequence = find_sequence ? find_sequence(id) : nullptr;
    return sequence && sequence->shares ? std::optional(sequence->salt) : std::nullopt;
  };
  models_.push_back(*std::move(made));
  model = reinterpret_cast<turbo_draft_model*>(models_.back().get());
  return Status::ok();
}

uint64_t HostProgram::draft_weights_bytes() const {
  uint64_t bytes = 0;
  for (const auto& model : models_) bytes += model->weights_bytes();
  return bytes;
}

uint64_t HostProgram::draft_kv_pool_bytes() const {
  uint64_t bytes = 0;
  for (const auto& model : models_) bytes += model->kv_pool_bytes();
  return bytes;
}

void HostProgram::flush() {
  for (const auto& model : models_) model->flush();
}

Status HostProgram::check_idle() const {
  for (const auto& model : models_) TURBO_RETURN_IF_ERROR(model->check_idle());
  return Status::ok();
}

}  // namespace turbo::engine
