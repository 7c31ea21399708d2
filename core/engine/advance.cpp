// What a step changed: tokens accepted, cache committed and published, listeners and drafter told, requests ended.
#include <spdlog/spdlog.h>

#include <algorithm>

#include "engine/impl.h"

namespace turbo::engine {

// Bring one request up to date with its rows of the step.
void Engine::Impl::apply(const sched::RowGroup& group, GroupOutput& output) {
  Live& request = *live.at(group.sequence->id);
  sched::Sequence& sequence = request.sequence;
  sequence.computed += group.n_tokens;
  if (const uint32_t end = std::min(group.first + group.n_tokens, sequence.n_prompt); end > request.n_counted) {
    metrics.prompt_tokens.Increment(end - request.n_counted);
    request.n_counted = end;
  }
  tell_scores(request, group, output);

  Status status;
  if (group.last && sequence.generates) {
    status = emit(request, group, output);
  } else {
    status = parts.cache->commit(sequence.blocks, sequence.computed);
    if (status && request.drafting) observe(request, group, output.first_row, nullptr);
    if (status && group.last) finish(request, FinishReason::length);
  }
  // After observe: a drafter's own cache of these blocks is written by then.
  if (status.is_ok()) parts.cache->publish(sequence.blocks, sequence.tokens);
  else finish(request, FinishReason::failed, status);
}

// Scores and logits of the prompt, each once: rows that run again after a preemption were told before. They borrow
// memory of the step, so they do not wait in the outbox.
void Engine::Impl::tell_scores(Live& request, const sched::RowGroup& group, const GroupOutput& output) {
  const size_t skip = std::min<size_t>(output.scores.size(), request.n_scored - std::min(request.n_scored, group.first));
  if (skip < output.scores.size())
    request.listener->on_prompt_scores(group.first + 1 + static_cast<uint32_t>(skip), std::span(output.scores).subspan(skip));
  for (size_t i = skip; i < output.logits.size(); ++i)
    request.listener->on_prompt_logits(group.first + static_cast<uint32_t>(i), output.logits[i]);
  request.n_scored = std::max(request.n_scored, group.first + static_cast<uint32_t>(output.scores.size()));
}

// The group's last row and its draft gave tokens: accept, take the tokens up to an end, and compact the cache to them.
// Accepted nodes beyond an end are no tokens of the request: their rows stay uncommitted.
Status Engine::Impl::emit(Live& request, const sched::RowGroup& group, GroupOutput& output) {
  TURBO_RETURN_IF_ERROR(output.status);
  sched::Sequence& sequence = request.sequence;
  std::vector<int32_t> drawn;
  for (const Token& token : output.drawn) drawn.push_back(token.id);
  const spec::DraftTree none;
  const spec::DraftTree& tree = group.n_draft ? request.draft : none;
  const spec::Acceptance acceptance = spec::accept(tree, drawn);
  std::vector<Token> tokens;
  int32_t end = -1;
  bool nothing_allowed = false;
  for (size_t i = 0; i < acceptance.emitted.size() && request.n_generated < request.request.max_tokens; ++i) {
    const size_t row = i == 0 ? 0 : acceptance.accepted[i - 1] + 1;
    Token& token = output.drawn[row];
    if (token.id < 0) {
      if (output.faults[row].code() != Code::not_found) return output.faults[row];
      nothing_allowed = true;
      break;
    }
    const auto& ends = request.request.end_tokens;
    if (std::find(ends.begin(), ends.end(), token.id) != ends.end()) {
      end = token.id;
      break;
    }
    sequence.tokens.push_back(token.id);
    tokens.push_back(std::move(token));
    ++request.n_generated;
  }
  const auto kept = std::span(acceptance.accepted).first(std::min(acceptance.accepted.size(), tokens.size()));
  TURBO_RETURN_IF_ERROR(compact(request, group.first + group.n_tokens - 1, kept));
  sequence.computed += static_cast<uint32_t>(kept.size());
  TURBO_RETURN_IF_ERROR(parts.cache->commit(sequence.blocks, sequence.computed));
  count(request, group, acceptance, kept.size(), tokens.size() + (end >= 0));
  metrics.generation_tokens.Increment(static_cast<double>(tokens.size()));
  const std::span<const int32_t> fresh = std::span<const int32_t>(sequence.tokens).last(tokens.size());
  if (request.request.mask && !fresh.empty()) TURBO_RETURN_IF_ERROR(request.request.mask->commit(fresh));

  if (!tokens.empty()) outbox.push_back({request.listener, std::move(tokens), {}});
  if (end >= 0 || nothing_allowed) finish(request, FinishReason::stop, {}, end);
  else if (request.n_generated == request.request.max_tokens) finish(request, FinishReason::length);
  else if (request.drafting) observe(request, group, output.first_row, &acceptance);
  return Status::ok();
}

namespace {

// For tools that replay what drafts were offered and what of them held.
void trace_round(const std::string& name, std::span<const int32_t> parents, const spec::Acceptance& acceptance, uint64_t draft_ns) {
  if (!spdlog::should_log(spdlog::level::trace)) return;
  spdlog::trace("{}: round {{\"parents\":[{}],\"accepted\":[{}],\"draft_us\":{}}}", name, fmt::join(parents, ","),
                fmt::join(acceptance.accepted, ","), draft_ns / 1000);
}

}  // namespace

// `kept`: accepted nodes that are tokens of the request, none behind its end. The draft's length learns from all that held,
// people are told what was kept.
void Engine::Impl::count(Live& request, const sched::RowGroup& group, const spec::Acceptance& acceptance, size_t kept, size_t n_emitted) {
  const uint64_t now = now_ns();
  if (request.first_token_ns == 0) {
    request.first_token_ns = now;
    metrics.time_to_first_token.Observe(seconds(now - request.submitted_ns));
  } else {
    metrics.inter_token.Observe(seconds(now - request.last_token_ns) / static_cast<double>(std::max<size_t>(1, n_emitted)));
    const uint64_t drafting_ns = earlier_draft_ns + draft_ns - request.draft_ns_seen;
    request.speculation.add_step(step_rows, step_run_ns);
    request.speculation.draft_ns += drafting_ns;
    if (request.drafting) trace_round(request.request.name, std::span<const int32_t>(request.draft.parents).first(group.n_draft), acceptance, drafting_ns);
  }
  request.last_token_ns = now;
  request.draft_ns_seen = earlier_draft_ns + draft_ns;
  step_emitted += n_emitted;
  Speculation& speculation = request.speculation;
  ++speculation.rounds;
  speculation.drafted += group.n_draft;
  speculation.accepted += kept;
  speculation.emitted += n_emitted;
  speculation.accepted_by_depth.resize(std::max(speculation.accepted_by_depth.size(), kept));
  for (size_t depth = 0; depth < kept; ++depth) ++speculation.accepted_by_depth[depth];
  if (group.n_draft > 0) {
    const auto held = static_cast<uint32_t>(acceptance.accepted.size());
    uint32_t deepest = 0;
    for (uint32_t node = 0; node < group.n_draft; ++node) deepest = std::max(deepest, request.draft.depth(node));
    metrics.draft_depth_reached.count_down_to(deepest);
    metrics.draft_depth_accepted.count_down_to(static_cast<uint32_t>(kept));
    request.draft_length.record(deepest, held, group.n_draft);
    typical_length.record(deepest, held, group.n_draft);
  }
  metrics.draft_tokens.Increment(group.n_draft);
  metrics.accepted_draft_tokens.Increment(static_cast<double>(kept));
}

// Accepted draft rows move to the slots of their positions. Sources lie at or after destinations, in order.
Status Engine::Impl::compact(Live& request, uint32_t root, std::span<const uint32_t> nodes) {
  for (uint32_t i = 0; i < nodes.size(); ++i)
    TURBO_RETURN_IF_ERROR(parts.cache->move_row(request.sequence.blocks, root + 1 + nodes[i], root + 1 + i));
  return Status::ok();
}

// The drafter hears every token once, in order: those of the prompt if it wants them (cached ones come without hidden
// states), then what was generated. After a preemption it hears all of them again in a new session.
void Engine::Impl::observe(Live& request, const sched::RowGroup& group, uint32_t first_row, const spec::Acceptance* acceptance) {
  std::vector<int32_t> rows;
  for (uint32_t i = 0; i < group.n_tokens; ++i) rows.push_back(static_cast<int32_t>(first_row + i));
  if (acceptance)
    for (const uint32_t node : acceptance->accepted) rows.push_back(static_cast<int32_t>(first_row + group.n_tokens + node));

  const sched::Sequence& sequence = request.sequence;
  Speculator::Observation observation;
  observation.tap_rows = rows;
  observation.tap_position = group.first;
  const uint32_t from = std::max(request.n_observed, speculator.wants_prompt() ? 0 : sequence.n_prompt);
  const uint32_t to = acceptance ? static_cast<uint32_t>(sequence.tokens.size()) : group.first + group.n_tokens;
  if (from < to) {
    observation.tokens = std::span(sequence.tokens).subspan(from, to - from);
    request.n_observed = to;
  }
  observation.position = from;
  observation.n_accepted = acceptance ? static_cast<uint32_t>(acceptance->accepted.size()) : 0;
  const uint64_t begin = now_ns();
  speculator.observe(sequence.id, observation, runner->taps());
  draft_ns += now_ns() - begin;
}

void Engine::Impl::finish(Live& request, FinishReason reason, Status status, int32_t stop_token) {
  if (!request.listener) return;  // already finished in this step
  const uint64_t now = now_ns();
  Finish finish;
  finish.reason = reason;
  finish.status = std::move(status);
  finish.stop_token = stop_token;
  finish.usage = {request.sequence.n_prompt, request.n_generated, request.n_cached};
  finish.timings.queued_ns = (request.admitted_ns ? request.admitted_ns : now) - request.submitted_ns;
  const uint64_t prompt_end = request.first_token_ns ? request.first_token_ns : now;
  finish.timings.prompt_ns = request.admitted_ns ? prompt_end - request.admitted_ns : 0;
  finish.timings.generate_ns = request.first_token_ns ? request.last_token_ns - request.first_token_ns : 0;
  finish.speculation = std::move(request.speculation);
  finish.preemptions = request.n_preemptions;
  if (finish.status.code() == Code::device_lost && !std::exchange(lost, true)) {
    // Known before any listener hears of it.
    spdlog::error("the compute device was lost: {}", finish.status.message());
    mailbox.close(finish.status);
    std::lock_guard lock(failure_mutex);
    failure = finish.status;
  }
  if (reason == FinishReason::cancelled) metrics.cancelled.Increment();
  metrics.request_seconds.Observe(seconds(now - request.submitted_ns));
  finished.push_back(request.sequence.id);
  outbox.push_back({std::exchange(request.listener, nullptr), {}, std::move(finish)});
}

// Nothing can be computed any more: also what still waited, or came in meanwhile.
void Engine::Impl::fail_all() {
  std::function<void(const Status&)> action;
  {
    std::lock_guard lock(failure_mutex);
    action = std::exchange(failure_action, nullptr);
  }
  for (auto& [id, request] : live) finish(*request, FinishReason::failed, failure);
  if (!action) return;
  deliver();  // the listeners hear of it first
  action(failure);
}

void Engine::Impl::remove_finished() {
  for (const uint64_t id : finished) {
    const auto found = live.find(id);
    if (found == live.end()) continue;
    Live& request = *found->second;
    speculator.close(id);
    parts.cache->release(request.sequence.blocks);
    if (const auto at = std::find(running.begin(), running.end(), &request.sequence); at != running.end()) running.erase(at);
    else waiting.remove(&request.sequence);
    if (!request.admitted_ns) mailbox.left_queue(1);
    shares.leave(request.sequence.client);
    live.erase(found);
    n_alive.fetch_sub(1);
  }
  finished.clear();
}

}  // namespace turbo::engine
