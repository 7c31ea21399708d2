#include "engine/step_runner.h"

#include <algorithm>

#include "base/abi_error.h"
#include "base/clock.h"
#include "engine/logprobs.h"
#include "engine/run_step.h"
#include "engine/sampling_arrays.h"

namespace turbo::engine {

StepRunner::StepRunner(const EngineParts& parts, std::vector<int32_t> tap_layers)
    : parts_(parts), plans_(parts, std::move(tap_layers)), arrays_(std::make_unique<SamplingArrays>()),
      masks_(parts.config->vocab_size) {}

StepRunner::~StepRunner() {
  if (table_) parts_.pack.api->table_free(parts_.pack.self, table_);
}

Result<std::unique_ptr<StepRunner>> StepRunner::create(const EngineParts& parts, const turbo_step_caps& caps,
                                                       std::vector<int32_t> tap_layers) {
  std::unique_ptr<StepRunner> runner(new StepRunner(parts, std::move(tap_layers)));
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(
      parts.pack.api->table_create(parts.pack.self, &caps, &runner->table_, failure.out()), "step table"));
  return runner;
}

uint32_t StepRunner::add_row(int32_t token, uint32_t position, uint32_t slot, uint32_t sequence_index) {
  const uint32_t row = table_->n_rows++;
  table_->token[row] = token;
  table_->position[row] = static_cast<int32_t>(position);
  table_->slot[row] = static_cast<int32_t>(slot);
  table_->row_seq[row] = static_cast<int32_t>(sequence_index);
  table_->path_length[row] = 0;
  return row;
}

void StepRunner::fill_blocks(const kv::SequenceBlocks& blocks, uint32_t sequence_index) {
  const size_t base = size_t{sequence_index} * table_->block_capacity;
  const size_t n = std::min<size_t>(blocks.packed.size(), table_->block_capacity);
  std::copy_n(blocks.packed.begin(), n, table_->block_table + base);
  std::copy_n(blocks.open.begin(), n, table_->open_table + base);
  std::fill(table_->block_table + base + n, table_->block_table + base + table_->block_capacity, -1);
  std::fill(table_->open_table + base + n, table_->open_table + base + table_->block_capacity, -1);
}

void StepRunner::fill_tokens(const GroupInput& input, uint32_t sequence_index, uint32_t group_index) {
  const sched::RowGroup& group = *input.group;
  const sched::Sequence& sequence = *group.sequence;
  const bool scoring = sequence.scores_prompt && group.first < sequence.n_prompt;
  for (uint32_t i = 0; i < group.n_tokens; ++i) {
    const uint32_t position = group.first + i;
    const uint32_t row = add_row(sequence.tokens[position], position, position, sequence_index);
    if (scoring && position + 1 < sequence.n_prompt) scored_.push_back({group_index, row, position, -1});
    if (group.last && i + 1 == group.n_tokens && sequence.generates) sampled_.push_back({group_index, row, position, -1});
  }
}

// Draft node i lies at slot root + 1 + i; its keys beyond the committed ones are the root and its ancestors.
void StepRunner::fill_draft(const GroupInput& input, uint32_t sequence_index, uint32_t group_index) {
  const sched::RowGroup& group = *input.group;
  const uint32_t root = group.first + group.n_tokens - 1;
  for (uint32_t node = 0; node < input.draft->size(); ++node) {
    const std::vector<uint32_t> path = input.draft->path(node);
    const uint32_t position = root + static_cast<uint32_t>(path.size());
    const uint32_t row = add_row(input.draft->tokens[node], position, root + 1 + node, sequence_index);
    table_->path_length[row] = static_cast<int32_t>(1 + path.size());
    int32_t* slots = table_->path + size_t{row} * table_->path_capacity;
    *slots++ = static_cast<int32_t>(root);
    for (const uint32_t ancestor : path) *slots++ = static_cast<int32_t>(root + 1 + ancestor);
    sampled_.push_back({group_index, row, position, static_cast<int32_t>(node)});
  }
}

void StepRunner::fill_table(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs) {
  table_->n_rows = table_->n_seqs = table_->n_logit_rows = 0;
  table_->open_uncommitted = parts_.cache->prompts_cross_blocks();
  sampled_.clear();
  scored_.clear();
  for (uint32_t g = 0; g < groups.size(); ++g) {
    const uint32_t sequence_index = table_->n_seqs++;
    outputs[g].first_row = table_->n_rows;
    table_->committed[sequence_index] = static_cast<int32_t>(groups[g].group->first);
    fill_blocks(groups[g].group->sequence->blocks, sequence_index);
    fill_tokens(groups[g], sequence_index, g);
    if (groups[g].draft) fill_draft(groups[g], sequence_index, g);
  }
  // Sampled rows first, so that the sampler reads one dense range.
  for (const LogitRow& row : sampled_) table_->logit_row[table_->n_logit_rows++] = static_cast<int32_t>(row.step_row);
  for (const LogitRow& row : scored_) table_->logit_row[table_->n_logit_rows++] = static_cast<int32_t>(row.step_row);
}

Status StepRunner::run(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs,
                       const std::function<void()>& meanwhile) {
  outputs.assign(groups.size(), {});
  fill_table(groups, outputs);
  const uint64_t masking = now_ns();
  mask(groups, outputs);
  times_.sample_ns += now_ns() - masking;
  TURBO_ASSIGN(const CompiledStep* step, plans_.get(table_->n_rows, table_->n_logit_rows));
  const turbo_arch_pack& pack = *parts_.pack.api;
  if (!pack.sync) meanwhile();
  // Time until run() has returned, and from the end of the drawing on, is the step's; a device computes while rows are drawn.
  uint64_t began = now_ns();
  bool told = !pack.sync;
  const Status done = run_step(pack, parts_.pack.self, step->plan, table_, "engine step", [&] {
    times_.compute_ns += now_ns() - began;
    if (!told) meanwhile();
    told = true;
    const uint64_t computed = now_ns();
    const Status drawn = draw(*step, groups, outputs);
    began = now_ns();
    times_.sample_ns += began - computed;
    return drawn;
  });
  times_.compute_ns += now_ns() - began;
  return done;
}

// What is asked of the step's results, on the device or behind it.
Status StepRunner::draw(const CompiledStep& step, std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs) {
  const turbo_arch_pack& pack = *parts_.pack.api;
  AbiError failure;
  for (GroupOutput& output : outputs) {  // of a step that was taken back
    output.drawn.clear();
    output.faults.clear();
    output.scores.clear();
    output.logits.clear();
  }
  tap_views_.clear();
  for (const uint32_t tap : step.program.taps) {
    turbo_view view{};
    view.struct_size = sizeof view;
    TURBO_RETURN_IF_ERROR(failure.check(pack.plan_buffer(parts_.pack.self, step.plan, tap, &view, failure.out()), "tap"));
    tap_views_.push_back(view);
  }
  if (table_->n_logit_rows == 0) return Status::ok();
  TURBO_RETURN_IF_ERROR(read_logits(step));
  if (!sampled_.empty()) TURBO_RETURN_IF_ERROR(sample(groups, outputs));
  if (!scored_.empty()) score(groups, outputs);
  return Status::ok();
}

Status StepRunner::read_logits(const CompiledStep& step) {
  const turbo_arch_pack& pack = *parts_.pack.api;
  AbiError failure;
  logits_ = turbo_view{};
  logits_.struct_size = sizeof logits_;
  TURBO_RETURN_IF_ERROR(failure.check(
      pack.plan_buffer(parts_.pack.self, step.plan, step.program.logits, &logits_, failure.out()), "logits"));
  if (scored_.empty() || logits_.memory == TURBO_MEMORY_HOST) return Status::ok();
  if (!pack.plan_read) return error(Code::unsupported, "the arch pack keeps logits on the device and cannot copy them");
  logits_copy_.resize(scored_.size() * parts_.config->vocab_size);
  return failure.check(pack.plan_read(parts_.pack.self, step.plan, step.program.logits, sampled_.size(), scored_.size(),
                                      logits_copy_.data(), failure.out()),
                       "copying logits");
}

// Sampled rows lie by group: the row after the last token, then those after its draft nodes.
void StepRunner::mask(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs) {
  masks_.begin(*table_);
  std::vector<uint32_t> row_of_node;
  for (uint32_t i = 0; i < sampled_.size();) {
    const uint32_t group = sampled_[i].group, root = i++;
    row_of_node.clear();
    while (i < sampled_.size() && sampled_[i].group == group) row_of_node.push_back(i++);
    const sched::Sequence& sequence = *groups[group].group->sequence;
    outputs[group].status = masks_.add(*groups[group].request, static_cast<uint32_t>(sequence.tokens.size()) - sequence.n_prompt,
                                       root, groups[group].draft, row_of_node);
  }
}

Status StepRunner::sample(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs) {
  SamplingArrays& arrays = *arrays_;
  uint32_t n_top = 0;
  bool any_logprobs = false;
  for (const GroupInput& input : groups) {
    n_top = std::max(n_top, input.request->logprobs ? input.request->n_top_logprobs : 0);
    any_logprobs |= input.request->logprobs;
  }
  arrays.begin(groups.size(), sampled_.size(), n_top);
  for (const GroupInput& input : groups) arrays.add_request(*input.request, *input.group->sequence, input.seed);
  for (const LogitRow& row : sampled_) {
    arrays.add_row(row.group, row.position + 1);
    if (row.node < 0) continue;
    for (const uint32_t node : groups[row.group].draft->path(static_cast<uint32_t>(row.node)))
      arrays.add_path_token(groups[row.group].draft->tokens[node]);
  }

  turbo_sample args = arrays.args(parts_.config->vocab_size, any_logprobs);
  args.logits = static_cast<const float*>(logits_.data);
  args.logit_stride = logits_.stride[0] / sizeof(float);
  if (table_->masked) {
    args.mask = table_->mask;
    args.mask_stride = table_->mask_words;
  }
  AbiError failure;
  TURBO_RETURN_IF_ERROR(failure.check(parts_.sampler->sample(parts_.sampler_self, &args, failure.out()), "sampler"));

  for (uint32_t i = 0; i < sampled_.size(); ++i) {
    GroupOutput& output = outputs[sampled_[i].group];
    const Request& request = *groups[sampled_[i].group].request;
    output.faults.push_back(arrays.row_status(i, parts_.config->vocab_size));
    output.drawn.push_back(arrays.token(i, request.logprobs, request.n_top_logprobs));
  }
  return Status::ok();
}

void StepRunner::score(std::span<const GroupInput> groups, std::vector<GroupOutput>& outputs) {
  const uint32_t vocab = parts_.config->vocab_size;
  const bool on_host = logits_.memory == TURBO_MEMORY_HOST;
  for (size_t i = 0; i < scored_.size(); ++i) {
    const LogitRow& row = scored_[i];
    const float* logits = on_host ? reinterpret_cast<const float*>(static_cast<const char*>(logits_.data) +
                                                                   (sampled_.size() + i) * logits_.stride[0])
                                  : logits_copy_.data() + i * vocab;
    const int32_t next = groups[row.group].group->sequence->tokens[row.position + 1];
    outputs[row.group].scores.push_back(score_token({logits, vocab}, next, groups[row.group].request->n_top_logprobs));
    if (groups[row.group].request->prompt_logits) outputs[row.group].logits.push_back({logits, vocab});
  }
}

}  // namespace turbo::engine
