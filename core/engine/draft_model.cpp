#include "engine/draft_model.h"

#include <turbo/plugin.hpp>

#include <algorithm>
#include <unordered_set>

#include "base/abi_error.h"
#include "engine/run_step.h"

namespace turbo::engine {
namespace {

constexpr uint32_t kLongRun = 256;  // rows of a run that only brings a text forward
constexpr uint32_t kTail = 4;       // tokens of a group that run beside the nodes of others; more than that runs before
constexpr uint32_t kMostRows = std::max(kLongRun, DraftModel::kMaxLogitRows * kTail + DraftModel::kMaxLogitRows);

}  // namespace

Result<std::unique_ptr<DraftModel>> DraftModel::load(model::Pack pack, const DraftFile& file, const model::ModelConfig& config,
                                                     const DraftModelLimits& limits, const WithCodecs& exact_codecs) {
  std::unique_ptr<DraftModel> model(new DraftModel(pack));
  model->own_weights_ = std::make_unique<model::WeightSet>(pack);
  TURBO_RETURN_IF_ERROR(model->own_weights_->load(*file.file, file.config, {}));
  TURBO_RETURN_IF_ERROR(file.file->verify_unchanged());
  model->shared_vocab_ = file.shared_vocab;
  TURBO_RETURN_IF_ERROR(model->create(config, *model->own_weights_, limits, exact_codecs));
  return model;
}

Result<std::unique_ptr<DraftModel>> DraftModel::borrow(model::Pack pack, const model::ModelConfig& config, const model::WeightSet& weights,
                                                       const DraftModelLimits& limits, const WithCodecs& exact_codecs) {
  std::unique_ptr<DraftModel> model(new DraftModel(pack));
  model->shared_vocab_ = config.vocab_size;
  TURBO_RETURN_IF_ERROR(model->create(config, weights, limits, exact_codecs));
  return model;
}

Status DraftModel::create(const model::ModelConfig& config, const model::WeightSet& weights, const DraftModelLimits& limits,
                          const WithCodecs& exact_codecs) {
  config_ = config;
  context_ = std::min(limits.context, config_.context_length);
  const kv::CacheShape shape{config_.n_layers, config_.n_kv_heads, config_.head_dim_k, config_.head_dim_v, limits.n_blocks, limits.max_sequences};
  TURBO_RETURN_IF_ERROR(exact_codecs([&]() -> Status {
    TURBO_ASSIGN(cache_, kv::KvCache::create(parts_.pack.api, parts_.pack.self, shape));
    return Status::ok();
  }));
  if (cache_->step_stays_in_block())
    return Status(Code::unsupported, "the draft model's cache needs a KV codec of one form, such as f16, on this tier");
  parts_.config = &config_;
  parts_.weights = &weights;
  parts_.cache = cache_.get();
  TURBO_ASSIGN(parts_.build_step, model::find_family(config_.architecture));
  plans_ = std::make_unique<PlanCache>(parts_, std::vector<int32_t>{});
  turbo_step_caps caps{};
  caps.struct_size = sizeof caps;
  caps.rows = kMostRows;
  caps.sequences = caps.logit_rows = kMaxLogitRows;
  caps.blocks_per_sequence = std::min(kv::blocks_for(uint64_t{context_} + kMaxNodes), limits.n_blocks);
  caps.path = kTail + kMaxNodes;
  AbiError failure;
  return failure.check(parts_.pack.api->table_create(parts_.pack.self, &caps, &table_, failure.out()), "draft model: step table");
}

DraftModel::~DraftModel() {
  if (cache_)
    for (auto& [id, sequence] : sequences_) cache_->release(sequence.blocks);
  if (table_) parts_.pack.api->table_free(parts_.pack.self, table_);
}

turbo_draft_facts DraftModel::facts(const model::ModelConfig& config, uint32_t shared_vocab, const DraftModelLimits& limits) {
  turbo_draft_facts facts{};
  facts.struct_size = sizeof facts;
  facts.n_layers = config.n_layers;
  facts.vocab_size = config.vocab_size;
  facts.shared_vocab = shared_vocab;
  facts.context = std::min(limits.context, config.context_length);
  facts.max_nodes = kMaxNodes;
  facts.max_logit_rows = kMaxLogitRows;
  return facts;
}

Status DraftModel::check(std::span<turbo_draft_group* const> groups) const {
  uint64_t n_logit_rows = 0;
  std::unordered_set<uint32_t> seen;
  for (const turbo_draft_group* group : groups) {
    if (!group || !TURBO_HAS(group, first_logits) || !group->tokens || (group->n_nodes > 0 && !group->parents) || group->n_tokens + uint64_t{group->n_nodes} == 0)
      return Status(Code::invalid_argument, "draft model: a group is empty or has no arrays");
    if (!seen.insert(group->sequence).second)
      return error(Code::invalid_argument, "draft model: sequence {} is in two groups of a run", group->sequence);
    const auto found = sequences_.find(group->sequence);
    const uint64_t text = found == sequences_.end() ? 0 : found->second.text.size(), nodes = found == sequences_.end() ? 0 : found->second.nodes.size();
    if (group->n_tokens > 0 && nodes > 0)
      return error(Code::invalid_argument, "draft model: sequence {} has nodes behind its text; keep or forget them first", group->sequence);
    if (text + group->n_tokens == 0) return error(Code::invalid_argument, "draft model: sequence {} has no text for nodes", group->sequence);
    if (nodes + group->n_nodes > kMaxNodes || text + group->n_tokens + nodes + group->n_nodes > context_ + uint64_t{kMaxNodes} || text + group->n_tokens > context_)
      return error(Code::invalid_argument, "draft model: {} tokens and {} nodes exceed the context of {}", text + group->n_tokens, nodes + group->n_nodes, context_);
    for (uint32_t i = 0; i < group->n_tokens + group->n_nodes; ++i)
      if (group->tokens[i] < 0 || static_cast<uint32_t>(group->tokens[i]) >= shared_vocab_)
        return error(Code::invalid_argument, "draft model: token {} is none of the {} that both models have", group->tokens[i], shared_vocab_);
    for (uint32_t i = 0; i < group->n_nodes; ++i)
      if (group->parents[i] < -1 || group->parents[i] >= static_cast<int64_t>(nodes + i))
        return error(Code::invalid_argument, "draft model: node {} has no parent {}", nodes + i, group->parents[i]);
    n_logit_rows += (group->n_tokens > 0) + uint64_t{group->n_nodes};
  }
  if (n_logit_rows > kMaxLogitRows) return error(Code::invalid_argument, "draft model: {} rows of logits in a run, at most {}", n_logit_rows, kMaxLogitRows);
  return Status::ok();
}

Status DraftModel::run(std::span<turbo_draft_group* const> groups, turbo_view& logits) {
  TURBO_RETURN_IF_ERROR(check(groups));
  const Status status = run_all(groups, logits);
  if (!status.is_ok())
    for (const turbo_draft_group* group : groups) undo(*group);
  return status;
}

Status DraftModel::run_all(std::span<turbo_draft_group* const> groups, turbo_view& logits) {
  for (turbo_draft_group* group : groups) {
    group->first_logits = -1;
    if (prepare(*group)) group->first_logits = 0;
    else undo(*group);
  }
  for (const turbo_draft_group* group : groups)
    if (group->first_logits >= 0) TURBO_RETURN_IF_ERROR(run_beginning(*group));
  begin_rows();
  for (turbo_draft_group* group : groups)
    if (group->first_logits >= 0) add_group(*group);
  if (table_->n_rows > 0) TURBO_RETURN_IF_ERROR(run_rows(&logits));
  for (const turbo_draft_group* group : groups)
    if (group->first_logits >= 0) finish(*group);
  return Status::ok();
}

// Blocks for all the group's rows. A new sequence first takes what the cache has of its text; its last token must run.
bool DraftModel::prepare(turbo_draft_group& group) {
  Sequence& sequence = sequences_[group.sequence];
  if (sequence.is_new) {
    if (const auto salt = find_salt ? find_salt(group.sequence) : std::nullopt) {
      cache_->share(sequence.blocks, *salt);
      cache_->adopt(sequence.blocks, {group.tokens, group.n_tokens}, group.n_tokens - 1);
    }
  }
  return cache_->grow(sequence.blocks, sequence.text.size() + uint64_t{group.n_tokens} + sequence.nodes.size() + group.n_nodes);
}

// All but the last few tokens of a long catch-up. A group's text itself grows in finish, once everything ran.
Status DraftModel::run_beginning(const turbo_draft_group& group) {
  Sequence& sequence = sequences_.at(group.sequence);
  const auto text = static_cast<uint32_t>(sequence.text.size());
  while (text + group.n_tokens > sequence.blocks.committed + kTail) {
    const uint32_t first = sequence.blocks.committed, n = std::min(kLongRun, text + group.n_tokens - first - 1);
    begin_rows();
    add_sequence(sequence, first);
    for (uint32_t i = 0; i < n; ++i) add_row(group.tokens[first - text + i], first + i, first + i, 0);
    TURBO_RETURN_IF_ERROR(run_rows(nullptr));
    TURBO_RETURN_IF_ERROR(cache_->commit(sequence.blocks, first + n));
  }
  return Status::ok();
}

void DraftModel::begin_rows() { table_->n_rows = table_->n_seqs = table_->n_logit_rows = table_->open_uncommitted = 0; }

void DraftModel::add_sequence(const Sequence& sequence, uint32_t committed) {
  const uint32_t index = table_->n_seqs++;
  table_->committed[index] = static_cast<int32_t>(committed);
  int32_t* blocks = table_->block_table + size_t{index} * table_->block_capacity;
  const size_t n = std::min<size_t>(sequence.blocks.packed.size(), table_->block_capacity);
  std::fill(std::copy_n(sequence.blocks.packed.begin(), n, blocks), blocks + table_->block_capacity, -1);
  std::fill_n(table_->open_table + size_t{index} * table_->block_capacity, table_->block_capacity, -1);
}

uint32_t DraftModel::add_row(int32_t token, uint32_t position, uint32_t slot, uint32_t index) {
  const uint32_t row = table_->n_rows++;
  table_->token[row] = token;
  table_->position[row] = static_cast<int32_t>(position);
  table_->slot[row] = static_cast<int32_t>(slot);
  table_->row_seq[row] = static_cast<int32_t>(index);
  table_->path_length[row] = 0;
  return row;
}

void DraftModel::add_group(turbo_draft_group& group) {
  const Sequence& sequence = sequences_.at(group.sequence);
  const uint32_t committed = sequence.blocks.committed, end = static_cast<uint32_t>(sequence.text.size()) + group.n_tokens;
  const uint32_t index = table_->n_seqs;
  add_sequence(sequence, committed);
  group.first_logits = static_cast<int32_t>(table_->n_logit_rows);
  uint32_t row = 0;
  for (uint32_t at = committed; at < end; ++at) row = add_row(group.tokens[at - sequence.text.size()], at, at, index);
  if (group.n_tokens > 0) table_->logit_row[table_->n_logit_rows++] = static_cast<int32_t>(row);

  const auto before = static_cast<uint32_t>(sequence.nodes.size());
  const auto parent_of = [&](uint32_t node) { return node < before ? sequence.parents[node] : group.parents[node - before]; };
  std::vector<uint32_t> path;  // of one node, itself first
  for (uint32_t i = 0; i < group.n_nodes; ++i) {
    path.clear();
    for (int32_t at = static_cast<int32_t>(before + i); at >= 0; at = parent_of(static_cast<uint32_t>(at))) path.push_back(static_cast<uint32_t>(at));
    row = add_row(group.tokens[group.n_tokens + i], end - 1 + static_cast<uint32_t>(path.size()), end + before + i, index);
    int32_t* slots = table_->path + size_t{row} * table_->path_capacity;
    for (uint32_t at = committed; at < end; ++at) *slots++ = static_cast<int32_t>(at);
    for (auto node = path.rbegin(); node != path.rend(); ++node) *slots++ = static_cast<int32_t>(end + *node);
    table_->path_length[row] = static_cast<int32_t>(end - committed + path.size());
    table_->logit_row[table_->n_logit_rows++] = static_cast<int32_t>(row);
  }
}

Status DraftModel::run_rows(turbo_view* logits) {
  TURBO_ASSIGN(const CompiledStep* step, plans_->get(table_->n_rows, table_->n_logit_rows));
  const turbo_arch_pack& pack = *parts_.pack.api;
  AbiError failure;
  TURBO_RETURN_IF_ERROR(run_step(pack, parts_.pack.self, step->plan, table_, "draft model", [] { return Status::ok(); }));
  if (!logits) return Status::ok();
  turbo_view view{};
  view.struct_size = sizeof view;
  TURBO_RETURN_IF_ERROR(failure.check(pack.plan_buffer(parts_.pack.self, step->plan, step->program.logits, &view, failure.out()), "draft model: logits"));
  view.shape[0] = table_->n_logit_rows;
  if (view.memory != TURBO_MEMORY_HOST) {
    if (!pack.plan_read) return Status(Code::unsupported, "the arch pack keeps logits on the device and cannot copy them");
    logits_copy_.resize(size_t{table_->n_logit_rows} * config_.vocab_size);
    TURBO_RETURN_IF_ERROR(failure.check(pack.plan_read(parts_.pack.self, step->plan, step->program.logits, 0, table_->n_logit_rows, logits_copy_.data(), failure.out()),
                                        "draft model: copying logits"));
    view.memory = TURBO_MEMORY_HOST;
    view.device = -1;
    view.data = logits_copy_.data();
    view.stride[0] = uint64_t{config_.vocab_size} * sizeof(float);
  }
  *logits = view;
  return Status::ok();
}

void DraftModel::finish(const turbo_draft_group& group) {
  Sequence& sequence = sequences_.at(group.sequence);
  sequence.is_new = false;
  sequence.text.insert(sequence.text.end(), group.tokens, group.tokens + group.n_tokens);
  sequence.nodes.insert(sequence.nodes.end(), group.tokens + group.n_tokens, group.tokens + group.n_tokens + group.n_nodes);
  sequence.parents.insert(sequence.parents.end(), group.parents, group.parents + group.n_nodes);
  if (group.n_tokens == 0) return;
  (void)cache_->commit(sequence.blocks, static_cast<uint32_t>(sequence.text.size()));  // one form: nothing is packed
  cache_->publish(sequence.blocks, sequence.text);
}

// As it was before a run that failed.
void DraftModel::undo(const turbo_draft_group& group) {
  const auto found = sequences_.find(group.sequence);
  if (found == sequences_.end()) return;
  if (found->second.is_new) return drop(group.sequence);
  (void)cache_->commit(found->second.blocks, static_cast<uint32_t>(found->second.text.size()));
}

Status DraftModel::keep(uint32_t id, std::span<const uint32_t> nodes) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return error(Code::not_found, "draft model: no sequence {}", id);
  Sequence& sequence = found->second;
  int32_t parent = -1;
  for (const uint32_t node : nodes) {
    if (node >= sequence.nodes.size() || sequence.parents[node] != parent)
      return error(Code::invalid_argument, "draft model: node {} does not continue the path", node);
    parent = static_cast<int32_t>(node);
  }
  const auto end = static_cast<uint32_t>(sequence.text.size());
  if (end + nodes.size() > context_) return error(Code::invalid_argument, "draft model: the text would exceed the context of {}", context_);
  // A parent comes before its child, so what is copied was not written over before.
  for (uint32_t i = 0; i < nodes.size(); ++i) TURBO_RETURN_IF_ERROR(cache_->move_row(sequence.blocks, end + nodes[i], end + i));
  for (const uint32_t node : nodes) sequence.text.push_back(sequence.nodes[node]);
  sequence.nodes.clear();
  sequence.parents.clear();
  TURBO_RETURN_IF_ERROR(cache_->commit(sequence.blocks, static_cast<uint32_t>(sequence.text.size())));
  cache_->publish(sequence.blocks, sequence.text);
  return Status::ok();
}

void DraftModel::drop(uint32_t id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  cache_->release(found->second.blocks);
  sequences_.erase(found);
}

Status DraftModel::check_idle() const {
  if (!sequences_.empty()) return error(Code::internal, "draft model: {} sequences were not dropped", sequences_.size());
  return cache_->check_idle().with_context("draft model");
}

}  // namespace turbo::engine
