// Who runs and which rows the next step computes.
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>

#include "engine/impl.h"
#include "engine/verify_cost.h"

namespace turbo::engine {

void Engine::Impl::admit() {
  while (true) {
    for (sched::Sequence* sequence : sched::admit(waiting, running, *parts.cache, shares, budget)) begin_running(*live.at(sequence->id));
    // Whoever still waits may take the place of lower priority, never of its own.
    const sched::Sequence* next = waiting.best(shares);
    if (!next || running.empty() || running.back()->priority >= next->priority) return;
    preempt(*running.back());
  }
}

void Engine::Impl::begin_running(Live& request) {
  adopted(request, 0);
  if (speculator.active() && request.request.use_drafter && request.sequence.generates) {
    speculator.open(request.sequence.id);
    request.drafting = speculator.is_open(request.sequence.id);
    request.n_observed = request.n_read = 0;
    if (!request.admitted_ns) request.draft_length = typical_length.fresh();
  }
  if (request.admitted_ns) return;  // back after a preemption
  mailbox.left_queue(1);
  request.admitted_ns = now_ns();
  metrics.queue_seconds.Observe(seconds(request.admitted_ns - request.submitted_ns));
  request.listener->on_admitted();
}

// Positions [before, computed) came from the prefix cache. What a preempted request gets back is its own.
void Engine::Impl::adopted(Live& request, uint32_t before) {
  const sched::Sequence& sequence = request.sequence;
  const uint32_t end = std::min(sequence.computed, sequence.n_prompt);
  if (end <= before || request.n_preemptions > 0) return;
  request.n_cached += end - before;
  request.n_counted = std::max(request.n_counted, end);
  metrics.cached_prompt_tokens.Increment(end - before);
  metrics.prompt_tokens.Increment(end - before);
}

// Its blocks go back; those it published stay cached as long as nobody needs them. It waits with all its tokens and
// later computes their rows again: the same bits, so nothing shows in the output.
void Engine::Impl::preempt(sched::Sequence& sequence) {
  Live& request = *live.at(sequence.id);
  speculator.close(sequence.id);
  request.drafting = false;
  request.draft = {};
  sequence.n_draft = 0;
  parts.cache->release(sequence.blocks);
  sequence.computed = 0;
  sequence.preempted = true;
  sequence.passed_over = 0;
  running.erase(std::find(running.begin(), running.end(), &sequence));
  waiting.push(&sequence);
  ++request.n_preemptions;
  n_preemptions.fetch_add(1);
  metrics.preemptions.Increment();
  spdlog::debug("{}: preempted after {} tokens", request.request.name, sequence.tokens.size());
}

// Blocks that others published since: requests with the same prompt, sent together, compute it once.
void Engine::Impl::adopt_late() {
  for (sched::Sequence* sequence : running) {
    if (sequence->pending() <= kv::kBlock || sequence->computed % kv::kBlock != 0) continue;
    const uint32_t before = sequence->computed;
    sequence->computed = parts.cache->adopt(sequence->blocks, sequence->tokens, sequence->adoptable());
    adopted(*live.at(sequence->id), before);
  }
}

// Failure leaves the cost unknown; live steps teach it then.
void Engine::Impl::learn_step_cost() {
  constexpr std::array<uint32_t, 8> kRows{1, 2, 3, 4, 6, 8, 12, 16};
  const auto costs = engine::measure_verify_cost(parts, *runner, budget, kRows, 0, 3, 100'000'000);
  if (!costs) return spdlog::warn("the price of verifying drafts was not measured: {}", costs.status().message());
  step_cost = spec::StepCost(*costs);
  std::string shown;
  for (const spec::RowCost& cost : *costs) shown += fmt::format(" {}:{:.2f}", cost.rows, cost.best / costs->front().best);
  spdlog::info("price of a step by its rows, relative to one row:{}", shown);
  if (const auto price = speculator.measure()) {
    draft_cost = spec::DraftCost(price->node_seconds, price->unread_seconds);
    spdlog::info("price of a drafted token in the same unit: {:.2f}, of one that the draft model reads: {:.3f}",
                 price->node_seconds / costs->front().best, price->unread_seconds / costs->front().best);
  }
}

// What the engine asks for at most, root included; 1 = no draft.
uint32_t Engine::Impl::draft_slots(Live& request, uint32_t other_rows, double other_tokens, double other_seconds) {
  // More nodes than tokens still wanted cannot pay; and slots must stay inside the request's longest end.
  const uint32_t left = request.sequence.max_tokens_total - static_cast<uint32_t>(request.sequence.tokens.size());
  uint32_t most = std::min(speculator.max_slots(), left);
  if (request.request.draft_slots) most = std::min(most, request.request.draft_slots);
  if (!parts.adaptive_drafts) return most;
  return request.draft_length.choose(most, step_cost, other_rows, other_tokens, draft_cost, other_seconds, {request.n_observed - request.n_read, left});
}

void Engine::Impl::propose() {
  if (!speculator.active()) return;
  std::vector<Speculator::Want> wants;
  // The step as it is without drafts; each draft that joins makes the next one dearer.
  uint32_t rows = 0;
  for (const sched::Sequence* sequence : running) rows += sequence->decoding();
  double tokens = rows, draft_seconds = 0;
  uint32_t nodes = 0;
  uint64_t unread = 0;
  for (sched::Sequence* sequence : running) {
    Live& request = *live.at(sequence->id);
    request.draft = {};
    sequence->n_draft = 0;
    if (!sequence->decoding() || !speculator.is_open(sequence->id)) continue;
    // One prompt token may be left as well. It is the root then, and the drafter has not heard of it.
    if (request.n_observed < sequence->tokens.size()) continue;
    if (parts.adaptive_drafts && !draft_gate.open()) continue;
    const uint32_t slots = draft_slots(request, rows - 1, tokens - 1, draft_seconds);
    if (slots < 2) continue;
    wants.push_back({sequence->id, slots, &request.draft});
    rows += slots - 1;
    nodes += slots - 1;
    unread += request.n_observed - request.n_read;
    request.n_read = request.n_observed;
    draft_seconds += draft_cost.of(slots - 1);
    tokens += request.draft_length.expected_tokens(slots) - 1;
  }
  if (wants.empty()) return;
  const uint64_t begin = now_ns();
  speculator.propose(wants);
  const uint64_t took = now_ns() - begin;
  draft_cost.record(nodes, seconds(took), unread);
  draft_ns += took;
  for (const Speculator::Want& want : wants) live.at(want.sequence)->sequence.n_draft = want.draft->size();
}

// Blocks for slots [0, slots), if need be those of sequences lower in rank. False: it is the lowest itself and now
// waits. The highest in rank always gets its blocks, because submit refuses what the whole pool cannot hold.
bool Engine::Impl::make_room(sched::Sequence& sequence, uint64_t slots) {
  while (!parts.cache->grow(sequence.blocks, slots)) {
    sched::Sequence* victim = sched::choose_victim(running);
    if (!victim) victim = &sequence;
    preempt(*victim);
    if (victim == &sequence) return false;
  }
  return true;
}

void Engine::Impl::prepare(const sched::StepPlan& plan) {
  inputs.clear();
  for (const sched::RowGroup& group : plan.groups) {
    sched::Sequence& sequence = *group.sequence;
    if (sequence.preempted || !make_room(sequence, uint64_t{group.first} + group.n_tokens + group.n_draft)) continue;
    Live& request = *live.at(sequence.id);
    inputs.push_back({&group, group.n_draft ? &request.draft : nullptr, &request.request, request.seed});
  }
  std::erase_if(inputs, [](const GroupInput& input) { return input.group->sequence->preempted; });
}

void Engine::Impl::step() {
  const uint64_t begin = now_ns(), draft_before = draft_ns;
  uint32_t decoding = 0;
  for (const sched::Sequence* sequence : running) decoding += sequence->decoding();
  budget.max_prompt_rows = limits.step_ms ? pace.prompt_rows(decoding, limits.step_ms * 1e-3, budget.max_rows) : ~0u;
  // Where nothing streams there is no rhythm to keep, and a longer step costs less a row.
  if (decoding == 0) budget.max_prompt_rows = std::max(budget.max_prompt_rows, budget.prefill_chunk);
  const sched::StepPlan plan = sched::plan_step(running, budget);
  prepare(plan);
  if (inputs.empty()) {
    // Everything was preempted for blocks that a file being saved holds: give it time.
    if (running.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return deliver();
  }
  if (const Status status = runner->run(inputs, outputs, [this] { deliver(); }); !status.is_ok()) {
    spdlog::error("engine step failed: {}", status.message());
    for (const GroupInput& input : inputs) finish(*live.at(input.group->sequence->id), FinishReason::failed, status);
    return;
  }
  step_rows = 0;
  step_emitted = 0;
  uint32_t nodes = 0;
  bool only_decodes = true;
  for (const GroupInput& input : inputs) {
    step_rows += input.group->n_tokens + input.group->n_draft;
    nodes += input.group->n_draft;
    only_decodes &= input.group->last && input.group->n_tokens == 1;
  }
  step_run_ns = runner->times().compute_ns + runner->times().sample_ns;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const sched::RowGroup& group = *inputs[i].group;
    shares.charge(group.sequence->client, group.n_tokens);
    apply(group, outputs[i]);
  }
  n_steps.fetch_add(1);
  const double took = seconds(now_ns() - begin);
  pace.record(step_rows, took);
  // What the drafter made of the step's tokens is no price of its rows.
  if (only_decodes) {
    step_cost.record(step_rows, took - seconds(draft_ns - draft_before));
    draft_gate.record({step_rows - nodes, nodes, static_cast<double>(step_emitted), seconds(draft_before)}, step_cost);
    metrics.decode_steps.count(step_rows, seconds(step_run_ns));
  }
  metrics.step_seconds.Observe(took);
  metrics.batch_tokens.Observe(step_rows);
  metrics.batch_requests.Observe(static_cast<double>(inputs.size()));
}

}  // namespace turbo::engine
