#include "engine/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>
#include <unordered_map>

#include "engine/mailbox.h"
#include "engine/speculator.h"
#include "engine/step_runner.h"

namespace turbo::engine {
namespace {

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                   std::chrono::steady_clock::now().time_since_epoch()).count());
}
double seconds(uint64_t ns) { return static_cast<double>(ns) * 1e-9; }

// A request from admission to its end. Engine thread only.
struct Live {
  sched::Sequence sequence;
  Request request;
  std::shared_ptr<Listener> listener;
  uint64_t seed = 0;
  uint64_t submitted_ns = 0, admitted_ns = 0, first_token_ns = 0, last_token_ns = 0;
  uint32_t n_generated = 0;
  spec::DraftTree draft;
  Speculation speculation;
  bool drafting = false;  // has a drafter session
};

}  // namespace

struct Engine::Impl {
  Impl(EngineParts parts, const EngineLimits& limits, Speculator speculator)
      : parts(std::move(parts)), limits(limits), metrics(this->parts.drafter_name), speculator(std::move(speculator)),
        mailbox(limits.max_queue) {}

  void loop();
  void accept(Mailbox::Mail& mail);
  void accept_one(Submission& submission);
  void expire_deadlines();
  void admit();
  void propose();
  void step();
  void apply(const sched::RowGroup& group, GroupOutput& output);
  Status emit(Live& live, const sched::RowGroup& group, GroupOutput& output);
  Status compact(Live& live, uint32_t root, const spec::Acceptance& acceptance);
  void observe(Live& live, const sched::RowGroup& group, uint32_t first_row, const spec::Acceptance* acceptance);
  void finish(Live& live, FinishReason reason, Status status = {}, int32_t stop_token = -1);
  void remove_finished();
  void fail_all();
  void publish();

  EngineParts parts;
  EngineLimits limits;
  Metrics metrics;
  Speculator speculator;
  std::unique_ptr<StepRunner> runner;
  Mailbox mailbox;
  sched::Budget budget;

  std::unordered_map<uint64_t, std::unique_ptr<Live>> live;
  std::deque<sched::Sequence*> waiting;
  std::vector<sched::Sequence*> running;
  std::vector<uint64_t> finished;
  std::vector<GroupInput> inputs;
  std::vector<GroupOutput> outputs;
  std::random_device entropy;

  std::atomic<uint64_t> next_id{1};
  std::atomic<uint32_t> n_running{0}, n_blocks_used{0}, n_alive{0};
  std::atomic<uint64_t> n_steps{0};
  std::mutex failure_mutex;
  Status failure;                                    // guarded by failure_mutex; written on the engine thread
  std::function<void(const Status&)> failure_action;  // guarded by failure_mutex
  bool lost = false;  // a request failed for good; engine thread
  std::mutex idle_mutex;
  std::condition_variable idle;
  std::thread thread;
};

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Engine::~Engine() {
  impl_->mailbox.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
}

Result<std::unique_ptr<Engine>> Engine::start(EngineParts parts, const EngineLimits& limits) {
  EngineLimits checked = limits;
  checked.max_running = std::max(1u, checked.max_running);
  // Every running sequence can decode in every step.
  checked.max_logit_rows = std::max(checked.max_logit_rows, checked.max_running);
  checked.max_step_rows = std::max(checked.max_step_rows, checked.max_logit_rows);
  TURBO_ASSIGN(Speculator speculator, Speculator::create(parts));
  auto impl = std::make_unique<Impl>(std::move(parts), checked, std::move(speculator));
  impl->budget = {checked.max_step_rows, checked.prefill_chunk, checked.max_logit_rows, checked.max_running,
                  impl->parts.cache->step_stays_in_block()};
  turbo_step_caps caps{};
  caps.struct_size = sizeof caps;
  caps.rows = checked.max_step_rows;
  caps.sequences = checked.max_running;
  caps.logit_rows = checked.max_logit_rows;
  // Draft slots may reach past the window by one draft.
  caps.blocks_per_sequence = std::min(kv::blocks_for(uint64_t{checked.context} + 64), impl->parts.cache->n_blocks());
  caps.path = 65;
  TURBO_ASSIGN(impl->runner, StepRunner::create(impl->parts, caps, impl->speculator.tap_layers()));
  impl->metrics.kv_blocks_total.Set(impl->parts.cache->n_blocks());
  Impl* raw = impl.get();
  if (impl->parts.host_program)
    impl->parts.host_program->find_sequence = [raw](uint32_t sequence) -> const kv::SequenceBlocks* {
      for (const sched::Sequence* running : raw->running)
        if (static_cast<uint32_t>(running->id) == sequence) return &running->blocks;
      return nullptr;
    };
  impl->thread = std::thread([raw] { raw->loop(); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

const EngineLimits& Engine::limits() const { return impl_->limits; }
Metrics& Engine::metrics() { return impl_->metrics; }

Result<RequestId> Engine::submit(Request request, std::shared_ptr<Listener> listener) {
  const EngineLimits& limits = impl_->limits;
  const uint64_t total = uint64_t{request.prompt.size()} + request.max_tokens;
  if (request.prompt.empty()) return Status(Code::invalid_argument, "the prompt is empty");
  if (total > limits.context)
    return error(Code::invalid_argument, "the prompt of {} tokens and {} more exceed the context of {}",
                 request.prompt.size(), request.max_tokens, limits.context);
  for (const int32_t token : request.prompt)
    if (token < 0 || static_cast<uint32_t>(token) >= impl_->parts.config->vocab_size)
      return error(Code::invalid_argument, "token {} is outside the vocabulary of {}", token, impl_->parts.config->vocab_size);
  if (kv::blocks_for(total) > impl_->parts.cache->n_blocks())
    return error(Code::resource_exhausted, "the request needs {} KV blocks but the pool has {}", kv::blocks_for(total),
                 impl_->parts.cache->n_blocks()).with_hint("ask for fewer tokens or raise kv.pool_tokens");
  const RequestId id = impl_->next_id.fetch_add(1);
  TURBO_RETURN_IF_ERROR(impl_->mailbox.submit({id, std::move(request), std::move(listener), now_ns()}));
  return id;
}

bool Engine::cancel(RequestId id) {
  impl_->mailbox.cancel(id);
  return id != 0 && id < impl_->next_id.load();
}

Snapshot Engine::snapshot() const {
  Snapshot s;
  s.running = impl_->n_running.load();
  s.waiting = impl_->mailbox.n_waiting();
  s.kv_blocks_total = impl_->parts.cache->n_blocks();
  s.kv_blocks_used = impl_->n_blocks_used.load();
  s.steps = impl_->n_steps.load();
  s.draining = impl_->mailbox.closed();
  return s;
}

Status Engine::failure() const {
  std::lock_guard lock(impl_->failure_mutex);
  return impl_->failure;
}

void Engine::on_failure(std::function<void(const Status&)> action) {
  {
    std::lock_guard lock(impl_->failure_mutex);
    if (impl_->failure.is_ok()) {
      impl_->failure_action = std::move(action);
      return;
    }
  }
  action(failure());
}

bool Engine::drain(uint64_t timeout_ms) {
  impl_->mailbox.close();
  const auto quiet = [&] { return impl_->n_alive.load() == 0 && impl_->mailbox.n_waiting() == 0; };
  bool clean;
  {
    std::unique_lock lock(impl_->idle_mutex);
    clean = impl_->idle.wait_for(lock, std::chrono::milliseconds(timeout_ms), quiet);
  }
  impl_->mailbox.stop();
  if (impl_->thread.joinable()) impl_->thread.join();
  return clean;
}

// ---- engine thread ----

void Engine::Impl::loop() {
  while (true) {
    Mailbox::Mail mail = mailbox.take(/*wait=*/live.empty());
    accept(mail);
    if (mail.stop) break;
    expire_deadlines();
    if (!lost) admit();
    if (!lost && !running.empty()) {
      propose();
      step();
    }
    if (lost) fail_all();
    remove_finished();
    publish();
  }
  for (auto& [id, request] : live) finish(*request, FinishReason::cancelled);
  remove_finished();
  publish();
}

void Engine::Impl::accept(Mailbox::Mail& mail) {
  for (Submission& submission : mail.submissions) accept_one(submission);
  for (const uint64_t id : mail.cancels)
    if (const auto found = live.find(id); found != live.end()) finish(*found->second, FinishReason::cancelled);
  remove_finished();
}

void Engine::Impl::accept_one(Submission& submission) {
  auto added = std::make_unique<Live>();
  added->request = std::move(submission.request);
  added->listener = std::move(submission.listener);
  added->submitted_ns = submission.submitted_ns;
  const Request& request = added->request;
  added->seed = request.sampling.seed ? *request.sampling.seed : (uint64_t{entropy()} << 32 | entropy());
  sched::Sequence& sequence = added->sequence;
  sequence.id = submission.id;
  sequence.tokens = request.prompt;
  sequence.n_prompt = static_cast<uint32_t>(request.prompt.size());
  sequence.max_tokens_total = sequence.n_prompt + request.max_tokens;
  sequence.generates = request.max_tokens > 0;
  sequence.scores_prompt = request.prompt_logprobs;
  sequence.tokens.reserve(sequence.max_tokens_total);
  waiting.push_back(&sequence);
  n_alive.fetch_add(1);
  live.emplace(submission.id, std::move(added));
}

void Engine::Impl::expire_deadlines() {
  const uint64_t now = now_ns();
  for (auto& [id, request] : live)
    if (request->request.timeout_ms && now - request->submitted_ns > request->request.timeout_ms * 1'000'000)
      finish(*request, FinishReason::timeout, Status(Code::cancelled, "the request's time ran out"));
  remove_finished();
}

void Engine::Impl::admit() {
  const uint32_t n = sched::admit(waiting, running, *parts.cache, budget);
  mailbox.left_queue(n);
  for (size_t i = running.size() - n; i < running.size(); ++i) {
    Live& admitted = *live.at(running[i]->id);
    admitted.admitted_ns = now_ns();
    metrics.queue_seconds.Observe(seconds(admitted.admitted_ns - admitted.submitted_ns));
    if (speculator.active() && admitted.request.use_drafter && admitted.sequence.generates) {
      speculator.open(running[i]->id);
      admitted.drafting = speculator.is_open(running[i]->id);
    }
    admitted.listener->on_admitted();
  }
}

void Engine::Impl::propose() {
  if (!speculator.active()) return;
  std::vector<Speculator::Want> wants;
  for (sched::Sequence* sequence : running) {
    Live& request = *live.at(sequence->id);
    request.draft = {};
    sequence->n_draft = 0;
    if (!sequence->decoding() || !speculator.is_open(sequence->id)) continue;
    // More nodes than tokens still wanted cannot pay; and slots must stay inside the reservation.
    const uint32_t left = sequence->max_tokens_total - static_cast<uint32_t>(sequence->tokens.size());
    uint32_t slots = std::min(speculator.max_slots(), left);
    if (request.request.draft_slots) slots = std::min(slots, request.request.draft_slots);
    if (slots >= 2) wants.push_back({sequence->id, slots, &request.draft});
  }
  speculator.propose(wants);
  for (const Speculator::Want& want : wants) live.at(want.sequence)->sequence.n_draft = want.draft->size();
}

void Engine::Impl::step() {
  const uint64_t begin = now_ns();
  const sched::StepPlan plan = sched::plan_step(running, budget);
  inputs.clear();
  for (const sched::RowGroup& group : plan.groups) {
    Live& request = *live.at(group.sequence->id);
    if (const Status status = parts.cache->grow(group.sequence->blocks, group.first + group.n_tokens + group.n_draft);
        !status.is_ok()) {
      finish(request, FinishReason::failed, status);
      continue;
    }
    inputs.push_back({&group, group.n_draft ? &request.draft : nullptr, &request.request, request.seed});
  }
  if (inputs.empty()) return;
  if (const Status status = runner->run(inputs, outputs); !status.is_ok()) {
    spdlog::error("engine step failed: {}", status.message());
    for (const GroupInput& input : inputs) finish(*live.at(input.group->sequence->id), FinishReason::failed, status);
    return;
  }
  for (size_t i = 0; i < inputs.size(); ++i) apply(*inputs[i].group, outputs[i]);
  n_steps.fetch_add(1);
  metrics.step_seconds.Observe(seconds(now_ns() - begin));
  metrics.batch_tokens.Observe(plan.n_rows);
}

// Bring one request up to date with its rows of the step.
void Engine::Impl::apply(const sched::RowGroup& group, GroupOutput& output) {
  Live& request = *live.at(group.sequence->id);
  sched::Sequence& sequence = request.sequence;
  sequence.computed += group.n_tokens;
  if (group.first < sequence.n_prompt) metrics.prompt_tokens.Increment(std::min(group.n_tokens, sequence.n_prompt - group.first));
  if (!output.scores.empty()) request.listener->on_prompt_scores(group.first + 1, output.scores);
  for (size_t i = 0; i < output.logits.size(); ++i)
    request.listener->on_prompt_logits(group.first + static_cast<uint32_t>(i), output.logits[i]);

  Status status;
  if (group.last && sequence.generates) {
    status = emit(request, group, output);
  } else {
    status = parts.cache->commit(sequence.blocks, sequence.computed);
    if (status && request.drafting) observe(request, group, output.first_row, nullptr);
    if (status && group.last) finish(request, FinishReason::length);
  }
  if (!status.is_ok()) finish(request, FinishReason::failed, status);
}

// The group's last row and its draft gave tokens: accept, compact the cache, tell the listener.
Status Engine::Impl::emit(Live& request, const sched::RowGroup& group, GroupOutput& output) {
  TURBO_RETURN_IF_ERROR(output.status);
  sched::Sequence& sequence = request.sequence;
  std::vector<int32_t> drawn;
  for (const Token& token : output.drawn) drawn.push_back(token.id);
  const spec::DraftTree none;
  const spec::DraftTree& tree = group.n_draft ? request.draft : none;
  const spec::Acceptance acceptance = spec::accept(tree, drawn);
  const uint32_t root = group.first + group.n_tokens - 1;
  TURBO_RETURN_IF_ERROR(compact(request, root, acceptance));
  sequence.computed += static_cast<uint32_t>(acceptance.accepted.size());
  TURBO_RETURN_IF_ERROR(parts.cache->commit(sequence.blocks, sequence.computed));

  const uint64_t now = now_ns();
  if (request.first_token_ns == 0) {
    request.first_token_ns = now;
    metrics.time_to_first_token.Observe(seconds(now - request.submitted_ns));
  } else {
    metrics.inter_token.Observe(seconds(now - request.last_token_ns) / acceptance.emitted.size());
  }
  request.last_token_ns = now;

  std::vector<Token> tokens;
  int32_t end = -1;
  bool full = false;
  for (size_t i = 0; i < acceptance.emitted.size() && end < 0 && !full; ++i) {
    Token& token = output.drawn[i == 0 ? 0 : acceptance.accepted[i - 1] + 1];
    if (token.id < 0) return output.draft_status.is_ok() ? Status(Code::internal, "no token was drawn") : output.draft_status;
    const auto& ends = request.request.end_tokens;
    if (std::find(ends.begin(), ends.end(), token.id) != ends.end()) {
      end = token.id;
      break;
    }
    sequence.tokens.push_back(token.id);
    tokens.push_back(std::move(token));
    full = ++request.n_generated == request.request.max_tokens;
  }
  Speculation& speculation = request.speculation;
  ++speculation.rounds;
  speculation.drafted += group.n_draft;
  speculation.accepted += acceptance.accepted.size();
  speculation.emitted += tokens.size() + (end >= 0);
  speculation.accepted_by_depth.resize(std::max(speculation.accepted_by_depth.size(), acceptance.accepted.size()));
  for (size_t depth = 0; depth < acceptance.accepted.size(); ++depth) ++speculation.accepted_by_depth[depth];
  metrics.draft_tokens.Increment(group.n_draft);
  metrics.accepted_draft_tokens.Increment(static_cast<double>(acceptance.accepted.size()));
  metrics.generation_tokens.Increment(static_cast<double>(tokens.size()));

  if (!tokens.empty()) request.listener->on_tokens(tokens);
  if (end >= 0) finish(request, FinishReason::stop, {}, end);
  else if (full) finish(request, FinishReason::length);
  else if (request.drafting) observe(request, group, output.first_row, &acceptance);
  return Status::ok();
}

// Accepted draft rows move to the slots of their positions. Sources lie at or after destinations, in order.
Status Engine::Impl::compact(Live& request, uint32_t root, const spec::Acceptance& acceptance) {
  for (uint32_t i = 0; i < acceptance.accepted.size(); ++i)
    TURBO_RETURN_IF_ERROR(parts.cache->move_row(request.sequence.blocks, root + 1 + acceptance.accepted[i], root + 1 + i));
  return Status::ok();
}

void Engine::Impl::observe(Live& request, const sched::RowGroup& group, uint32_t first_row, const spec::Acceptance* acceptance) {
  std::vector<int32_t> rows;
  for (uint32_t i = 0; i < group.n_tokens; ++i) rows.push_back(static_cast<int32_t>(first_row + i));
  if (acceptance)
    for (const uint32_t node : acceptance->accepted) rows.push_back(static_cast<int32_t>(first_row + group.n_tokens + node));

  const sched::Sequence& sequence = request.sequence;
  Speculator::Observation observation;
  observation.tap_rows = rows;
  observation.tap_position = group.first;
  // New tokens: the prompt's share of this group, then what was emitted.
  uint32_t from = static_cast<uint32_t>(sequence.tokens.size() - (acceptance ? acceptance->emitted.size() : 0));
  if (group.first < sequence.n_prompt) from = speculator.wants_prompt() ? group.first : from;
  const uint32_t to = acceptance ? static_cast<uint32_t>(sequence.tokens.size()) : group.first + group.n_tokens;
  if (from < to) observation.tokens = std::span(sequence.tokens).subspan(from, to - from);
  observation.position = from;
  observation.n_accepted = acceptance ? static_cast<uint32_t>(acceptance->accepted.size()) : 0;
  const uint64_t faults_before = speculator.faults();
  speculator.observe(sequence.id, observation, runner->taps());
  if (speculator.faults() != faults_before) metrics.plugin_errors.Increment();
}

void Engine::Impl::finish(Live& request, FinishReason reason, Status status, int32_t stop_token) {
  if (!request.listener) return;  // already finished in this step
  const uint64_t now = now_ns();
  Finish finish;
  finish.reason = reason;
  finish.status = std::move(status);
  finish.stop_token = stop_token;
  finish.usage = {request.sequence.n_prompt, request.n_generated, 0};
  finish.timings.queued_ns = (request.admitted_ns ? request.admitted_ns : now) - request.submitted_ns;
  const uint64_t prompt_end = request.first_token_ns ? request.first_token_ns : now;
  finish.timings.prompt_ns = request.admitted_ns ? prompt_end - request.admitted_ns : 0;
  finish.timings.generate_ns = request.first_token_ns ? request.last_token_ns - request.first_token_ns : 0;
  finish.speculation = std::move(request.speculation);
  if (finish.status.code() == Code::device_lost && !std::exchange(lost, true)) {
    // Known before any listener hears of it.
    spdlog::error("the compute device was lost: {}", finish.status.message());
    mailbox.close(finish.status);
    std::lock_guard lock(failure_mutex);
    failure = finish.status;
  }
  if (reason == FinishReason::cancelled) metrics.cancelled.Increment();
  metrics.request_seconds.Observe(seconds(now - request.submitted_ns));
  const std::shared_ptr<Listener> listener = std::move(request.listener);
  request.listener = nullptr;
  finished.push_back(request.sequence.id);
  listener->on_finish(finish);
}

// Nothing can be computed any more: also what still waited, or came in meanwhile.
void Engine::Impl::fail_all() {
  std::function<void(const Status&)> action;
  {
    std::lock_guard lock(failure_mutex);
    action = std::exchange(failure_action, nullptr);
  }
  for (auto& [id, request] : live) finish(*request, FinishReason::failed, failure);
  if (action) action(failure);
}

void Engine::Impl::remove_finished() {
  for (const uint64_t id : finished) {
    const auto found = live.find(id);
    if (found == live.end()) continue;
    sched::Sequence* sequence = &found->second->sequence;
    speculator.close(id);
    parts.cache->release(sequence->blocks);
    if (const auto at = std::find(running.begin(), running.end(), sequence); at != running.end()) {
      running.erase(at);
    } else if (const auto queued = std::find(waiting.begin(), waiting.end(), sequence); queued != waiting.end()) {
      waiting.erase(queued);
      mailbox.left_queue(1);
    }
    live.erase(found);
    n_alive.fetch_sub(1);
  }
  finished.clear();
}

void Engine::Impl::publish() {
  n_running.store(static_cast<uint32_t>(running.size()));
  n_blocks_used.store(parts.cache->n_used());
  metrics.requests_running.Set(static_cast<double>(running.size()));
  metrics.requests_waiting.Set(mailbox.n_waiting());
  metrics.kv_blocks_used.Set(parts.cache->n_used());
  if (live.empty()) {
    std::lock_guard lock(idle_mutex);
    idle.notify_all();
  }
}

}  // namespace turbo::engine
