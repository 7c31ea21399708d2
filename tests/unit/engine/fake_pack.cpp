#include "fake_pack.h"

#include <chrono>
#include <thread>

namespace turbo::engine::testing {
namespace {

model::StepProgram build_fake(const model::ModelConfig&, const model::WeightSet&, const model::StepShape& shape) {
  model::StepProgram step;
  step.builder = std::make_unique<ProgramBuilder>("fake", shape.max_rows, shape.max_logit_rows, shape.kv);
  step.logits = step.builder->buffer("logits", kVocab, TURBO_ROWS_LOGIT, true);
  for (size_t i = 0; i < shape.tap_layers.size(); ++i) step.taps.push_back(step.logits);
  return step;
}

struct OwnedTable {
  turbo_step_table table;
  std::vector<int32_t> token, position, row_seq, slot, path_length, path, committed, block_table, open_table, logit_row;
  std::vector<uint32_t> mask;
};

turbo_arch_pack make_api() {
  turbo_arch_pack api{};
  api.struct_size = sizeof api;
  api.kv_bytes = [](void* self, const turbo_kv_pool_desc*, turbo_kv_bytes* bytes, turbo_error*) -> turbo_status {
    const FakePack& pack = FakePack::of(self);
    bytes->open_is_packed = !pack.packs;
    bytes->block_bytes = 64 * 4;
    bytes->open_block_bytes = pack.packs ? 64 * 8 : 0;
    bytes->sinks = pack.sinks;
    return TURBO_OK;
  };
  api.kv_create = [](void* self, const turbo_kv_pool_desc* desc, turbo_kv_pool** pool, turbo_error*) -> turbo_status {
    FakePack::of(self).packed.assign(size_t{desc->n_blocks} * 64, -7);
    FakePack::of(self).open.assign(size_t{desc->n_open_blocks} * 64, -7);
    *pool = static_cast<turbo_kv_pool*>(self);
    return TURBO_OK;
  };
  api.kv_free = [](void*, turbo_kv_pool*) {};
  api.kv_pack = [](void* self, turbo_kv_pool*, int32_t open_id, int32_t block_id, turbo_error*) -> turbo_status {
    FakePack& pack = FakePack::of(self);
    std::copy_n(pack.open.begin() + open_id * 64, 64, pack.packed.begin() + block_id * 64);
    return TURBO_OK;
  };
  api.kv_move_row = [](void* self, turbo_kv_pool*, const turbo_kv_place* src, const turbo_kv_place* dst, turbo_error*) -> turbo_status {
    FakePack& pack = FakePack::of(self);
    std::vector<int32_t>& form = pack.packs ? pack.open : pack.packed;
    const auto at = [&](const turbo_kv_place* place) { return size_t(pack.packs ? place->open_id : place->block_id) * 64 + place->row; };
    form[at(dst)] = form[at(src)];
    return TURBO_OK;
  };
  api.kv_read = [](void* self, turbo_kv_pool*, int32_t id, uint32_t form, void* dst, uint64_t bytes, turbo_error* error) -> turbo_status {
    FakePack& pack = FakePack::of(self);
    const bool open = form == TURBO_KV_FORM_OPEN;
    if (bytes != (open ? 64 * 8 : 64 * 4)) return FakePack::fail(error, "kv_read: wrong size");
    std::memset(dst, 0, bytes);
    std::memcpy(dst, (open ? pack.open : pack.packed).data() + size_t(id) * 64, 64 * 4);
    return TURBO_OK;
  };
  api.kv_write = [](void* self, turbo_kv_pool*, int32_t id, uint32_t form, const void* src, uint64_t bytes, turbo_error* error) -> turbo_status {
    FakePack& pack = FakePack::of(self);
    const bool open = form == TURBO_KV_FORM_OPEN;
    if (bytes != (open ? 64 * 8 : 64 * 4)) return FakePack::fail(error, "kv_write: wrong size");
    std::memcpy((open ? pack.open : pack.packed).data() + size_t(id) * 64, src, 64 * 4);
    return TURBO_OK;
  };
  api.table_create = [](void*, const turbo_step_caps* caps, turbo_step_table** out, turbo_error*) -> turbo_status {
    auto* owned = new OwnedTable;
    const auto array = [](std::vector<int32_t>& v, size_t n) { return v.assign(n, -1), v.data(); };
    turbo_step_table& t = owned->table;
    t = {sizeof t, caps->rows, caps->sequences, caps->logit_rows, caps->blocks_per_sequence, caps->path, 0, 0, 0, 0};
    t.token = array(owned->token, caps->rows);
    t.position = array(owned->position, caps->rows);
    t.row_seq = array(owned->row_seq, caps->rows);
    t.slot = array(owned->slot, caps->rows);
    t.path_length = array(owned->path_length, caps->rows);
    t.path = array(owned->path, size_t{caps->rows} * caps->path);
    t.committed = array(owned->committed, caps->sequences);
    t.block_table = array(owned->block_table, size_t{caps->sequences} * caps->blocks_per_sequence);
    t.open_table = array(owned->open_table, size_t{caps->sequences} * caps->blocks_per_sequence);
    t.logit_row = array(owned->logit_row, caps->logit_rows);
    owned->mask.assign(size_t{caps->logit_rows} * caps->mask_words, 0x5a5a5a5a);
    t.mask = owned->mask.data();
    t.mask_words = caps->mask_words;
    *out = &t;
    return TURBO_OK;
  };
  api.table_free = [](void*, turbo_step_table* table) { delete reinterpret_cast<OwnedTable*>(table); };
  api.compile = [](void*, const turbo_program* program, turbo_plan** plan, turbo_error*) -> turbo_status {
    *plan = reinterpret_cast<turbo_plan*>(new FakePlan{program->max_rows, program->max_logit_rows});
    return TURBO_OK;
  };
  api.plan_bytes = [](void*, const turbo_plan*) -> uint64_t { return 0; };
  api.plan_free = [](void*, turbo_plan* plan) { delete reinterpret_cast<FakePlan*>(plan); };
  api.run = [](void* self, turbo_plan* plan, turbo_step_table* table, turbo_error* error) -> turbo_status {
    const auto& shape = *reinterpret_cast<FakePlan*>(plan);
    FakePack& pack = FakePack::of(self);
    if (const int wait = pack.slow_run_us + pack.row_us * static_cast<int>(table->n_rows); wait > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(wait));
    if (table->n_rows > shape.max_rows || table->n_logit_rows > shape.max_logit_rows) return FakePack::fail(error, "over the plan's bucket");
    return pack.run(*table, error);
  };
  api.plan_buffer = [](void* self, turbo_plan*, uint32_t, turbo_view* view, turbo_error*) -> turbo_status {
    std::vector<float>& logits = FakePack::of(self).logits;
    view->data = logits.data();
    view->bytes = logits.size() * 4;
    view->rank = 2;
    view->shape[0] = logits.size() / kVocab;
    view->shape[1] = kVocab;
    view->stride[0] = kVocab * 4;
    view->stride[1] = 4;
    return TURBO_OK;
  };
  return api;
}

}  // namespace

const turbo_arch_pack* fake_pack_api() {
  static const turbo_arch_pack api = make_api();
  return &api;
}

const turbo_sampler* fake_sampler_api() {
  static const turbo_sampler api{sizeof(turbo_sampler), 0, [](void*, const turbo_sample* a, turbo_error*) -> turbo_status {
    for (uint32_t row = 0; row < a->n_rows; ++row) {
      const float* logits = a->logits + row * a->logit_stride;
      const uint32_t request = a->row_request[row];
      int32_t best = -1;
      for (uint32_t t = 0; t < a->vocab; ++t) {
        if (a->mask && !(a->mask[row * a->mask_stride + t / 32] >> (t % 32) & 1)) continue;
        if (best < 0 || logits[t] > logits[best]) best = static_cast<int32_t>(t);
      }
      if (a->params->temperature[request] > 0)
        best = static_cast<int32_t>(turbo_mix64(turbo_mix64(a->params->seed[request]) ^ a->row_position[row] ^
                                                static_cast<uint64_t>(logits[0] * 1e5f)) % a->vocab);
      a->ids[row] = best;
      if (a->logprobs) a->logprobs[row] = -1.0f;
      a->row_status[row] = best < 0 ? TURBO_NOT_FOUND : TURBO_OK;
    }
    return TURBO_OK;
  }};
  return &api;
}

FakeModel::FakeModel(uint32_t n_blocks, uint32_t max_sequences, bool packs, uint32_t sinks) {
  pack.packs = packs;
  pack.sinks = sinks;
  config.architecture = "fake";
  config.vocab_size = kVocab;
  config.n_layers = 3;
  config.n_embd = 8;
  weights = std::make_unique<model::WeightSet>(model::Pack{fake_pack_api(), &pack});
  cache = std::move(kv::KvCache::create(fake_pack_api(), &pack, {1, 1, 1, 1, n_blocks, max_sequences})).value();
}

EngineParts FakeModel::parts() const {
  EngineParts parts;
  parts.pack = {fake_pack_api(), const_cast<FakePack*>(&pack)};
  parts.config = &config;
  parts.weights = weights.get();
  parts.build_step = build_fake;
  parts.cache = cache.get();
  parts.sampler = fake_sampler_api();
  parts.drafter = drafter;
  parts.drafter_self = drafter_self;
  parts.draft_slots = draft_slots;
  parts.drafter_name = "scripted";
  parts.cache_fingerprint = [this]() -> Result<std::string> { return fingerprint; };
  return parts;
}

}  // namespace turbo::engine::testing
