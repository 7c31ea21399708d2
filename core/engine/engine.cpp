#include "engine/engine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <utility>

#include "engine/impl.h"
#include "engine/verify_cost.h"

namespace turbo::engine {

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
  Result<Speculator> speculator = Speculator::create(parts);
  if (!speculator) spdlog::warn("running without a drafter: {}", speculator.status().message());
  auto impl = std::make_unique<Impl>(std::move(parts), checked, speculator ? std::move(*speculator) : Speculator());
  impl->budget = {checked.max_step_rows, checked.prefill_chunk, ~0u, checked.max_logit_rows, checked.max_running,
                  impl->parts.cache->step_stays_in_block(), impl->parts.cache->prompts_cross_blocks()};
  turbo_step_caps caps{};
  caps.struct_size = sizeof caps;
  caps.rows = checked.max_step_rows;
  caps.sequences = checked.max_running;
  caps.logit_rows = checked.max_logit_rows;
  // Draft slots may reach past the window by one draft.
  caps.blocks_per_sequence = std::min(kv::blocks_for(uint64_t{checked.context} + 64), impl->parts.cache->n_blocks());
  caps.path = 65;
  caps.mask_words = (impl->parts.config->vocab_size + 31) / 32;
  TURBO_ASSIGN(impl->runner, StepRunner::create(impl->parts, caps, impl->speculator.tap_layers()));
  impl->metrics.kv_blocks_total.Set(impl->parts.cache->n_blocks());
  if (impl->speculator.active() && impl->parts.adaptive_drafts) impl->learn_step_cost();
  Impl* raw = impl.get();
  if (impl->parts.host_program)
    impl->parts.host_program->find_sequence = [raw](uint32_t sequence) -> const sched::Sequence* {
      for (const sched::Sequence* running : raw->running)
        if (static_cast<uint32_t>(running->id) == sequence) return running;
      return nullptr;
    };
  impl->thread = std::thread([raw] { raw->loop(); });
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<std::vector<spec::RowCost>> Engine::measure_verify_cost(std::span<const uint32_t> rows, uint32_t depth, uint32_t reps) {
  Result<std::vector<spec::RowCost>> costs = Status(Code::cancelled, "the engine is shutting down");
  impl_->ask([&] {
    costs = engine::measure_verify_cost(impl_->parts, *impl_->runner, impl_->budget, rows, depth, std::max(1u, reps));
    impl_->idle_checked = false;
  });
  return costs;
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
  impl_->mailbox.end(id, FinishReason::cancelled);
  return id != 0 && id < impl_->next_id.load();
}

bool Engine::finish(RequestId id) {
  impl_->mailbox.end(id, FinishReason::stop);
  return id != 0 && id < impl_->next_id.load();
}

Snapshot Engine::snapshot() const {
  Snapshot s;
  s.running = impl_->n_running.load();
  s.waiting = impl_->mailbox.n_waiting();
  s.kv_blocks_total = impl_->parts.cache->n_blocks();
  s.kv_blocks_used = impl_->n_blocks_used.load();
  s.kv_blocks_cached = impl_->n_blocks_cached.load();
  s.steps = impl_->n_steps.load();
  s.preemptions = impl_->n_preemptions.load();
  s.leaks = impl_->n_leaks.load();
  s.draining = impl_->mailbox.closed();
  return s;
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

bool Engine::Impl::ask(const std::function<void()>& task) {
  // Held by the task: dropped unrun, it breaks the promise and so ends the wait.
  auto done = std::make_shared<std::promise<void>>();
  std::future<void> answer = done->get_future();
  if (!mailbox.run([this, &task, done = std::move(done)] {
        task();
        publish();  // who asked finds the outcome in the counters
        done->set_value();
      }))
    return false;
  try {
    answer.get();
    return true;
  } catch (const std::future_error&) {
    return false;
  }
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

Result<std::vector<RequestInfo>> Engine::requests(bool with_prompts) {
  std::vector<RequestInfo> all;
  const bool asked = impl_->ask([&] {
    const uint64_t now = now_ns();
    for (const auto& [id, request] : impl_->live) {
      const sched::Sequence& sequence = request->sequence;
      RequestInfo info;
      info.id = id;
      info.name = request->request.name;
      info.state = !request->admitted_ns || sequence.preempted ? RequestState::waiting
                   : request->first_token_ns                   ? RequestState::generating
                                                               : RequestState::prompt;
      info.priority = request->request.priority;
      info.prompt_tokens = sequence.n_prompt;
      info.computed_tokens = sequence.computed;
      info.cached_tokens = request->n_cached;
      info.generated_tokens = request->n_generated;
      info.max_tokens = request->request.max_tokens;
      info.drafted = request->speculation.drafted;
      info.accepted = request->speculation.accepted;
      info.preemptions = request->n_preemptions;
      info.age_ms = (now - request->submitted_ns) / 1'000'000;
      if (with_prompts) info.prompt.assign(sequence.tokens.begin(), sequence.tokens.begin() + sequence.n_prompt);
      all.push_back(std::move(info));
    }
  });
  if (!asked) return Status(Code::cancelled, "the engine is shutting down");
  std::sort(all.begin(), all.end(), [](const RequestInfo& a, const RequestInfo& b) { return a.id < b.id; });
  return all;
}

// ---- engine thread ----

void Engine::Impl::loop() {
  constexpr std::chrono::milliseconds kForEver{-1}, kUntilCalm{100};
  while (true) {
    // The self-check waits for a calm moment, so that it costs no request time.
    Mailbox::Mail mail = mailbox.take(!live.empty() ? std::chrono::milliseconds(0) : idle_checked ? kForEver : kUntilCalm);
    const bool calm = live.empty() && mail.submissions.empty() && mail.tasks.empty() && !mail.stop;
    const uint64_t begin = now_ns();
    earlier_draft_ns += draft_ns;
    deliver_ns = draft_ns = 0;
    runner->reset_times();
    accept(mail);
    if (mail.stop) break;
    if (calm && !idle_checked) check_idle();
    expire_deadlines();
    if (!lost) admit();
    if (!lost && !running.empty()) {
      adopt_late();
      propose();
      step();
    }
    if (lost) fail_all();
    remove_finished();
    publish();  // first, so that who hears of an end finds it in the numbers
    if (running.empty()) deliver();
    count_time(begin);
  }
  for (auto& [id, request] : live) finish(*request, FinishReason::cancelled);
  remove_finished();
  publish();
  deliver();
  check_idle();
}

void Engine::Impl::accept(Mailbox::Mail& mail) {
  for (Submission& submission : mail.submissions) accept_one(submission);
  for (const auto& [id, reason] : mail.ends)
    if (const auto found = live.find(id); found != live.end()) finish(*found->second, reason);
  remove_finished();
  for (const std::function<void()>& task : mail.tasks) task();
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
  sequence.priority = request.priority;
  sequence.client = request.client;
  sequence.tokens = request.prompt;
  sequence.n_prompt = static_cast<uint32_t>(request.prompt.size());
  sequence.max_tokens_total = sequence.n_prompt + request.max_tokens;
  sequence.generates = request.max_tokens > 0;
  sequence.scores_prompt = request.prompt_logprobs;
  sequence.shares = limits.prefix_cache && request.use_prefix_cache;
  // A drafter with a cache of its own in the same blocks fills it only for the requests it drafts for.
  const bool fills = speculator.fills_blocks() && (!parts.host_program || parts.host_program->fills_blocks());
  sequence.salt = (fills && request.use_drafter ? "drafted:" : "plain:") + request.cache_salt;
  waiting.push(&sequence);
  shares.join(sequence.client);
  idle_checked = false;
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

// Where this turn of the loop went.
void Engine::Impl::count_time(uint64_t begin) {
  const uint64_t whole = now_ns() - begin;
  const StepTimes& times = runner->times();
  metrics.compute_seconds.Increment(seconds(times.compute_ns));
  metrics.sample_seconds.Increment(seconds(times.sample_ns));
  metrics.deliver_seconds.Increment(seconds(deliver_ns));
  metrics.draft_seconds.Increment(seconds(draft_ns));
  metrics.schedule_seconds.Increment(seconds(whole - std::min(whole, times.compute_ns + times.sample_ns + deliver_ns + draft_ns)));
}

void Engine::Impl::deliver() {
  if (outbox.empty()) return;
  const uint64_t begin = now_ns();
  std::vector<Event> events;
  events.swap(outbox);
  for (Event& event : events) {
    if (!event.tokens.empty()) event.listener->on_tokens(event.tokens);
    if (event.finish) event.listener->on_finish(*event.finish);
    event.listener.reset();  // its end may take as long as the call
  }
  if (outbox.empty()) {
    events.clear();
    outbox.swap(events);  // keep the storage
  }
  deliver_ns += now_ns() - begin;
}

void Engine::Impl::publish() {
  n_running.store(static_cast<uint32_t>(running.size()));
  const uint32_t cached = parts.cache->n_cached(), used = parts.cache->n_used() - cached;
  n_blocks_used.store(used);
  n_blocks_cached.store(cached);
  metrics.plugin_errors.Increment(static_cast<double>(speculator.faults() - std::exchange(n_faults_told, speculator.faults())));
  metrics.drafts_not_ready.Increment(static_cast<double>(speculator.not_ready() - std::exchange(n_not_ready_told, speculator.not_ready())));
  metrics.requests_running.Set(static_cast<double>(running.size()));
  metrics.requests_waiting.Set(mailbox.n_waiting());
  metrics.kv_blocks_used.Set(used);
  metrics.kv_blocks_cached.Set(cached);
  if (live.empty()) {
    std::lock_guard lock(idle_mutex);
    idle.notify_all();
  }
}

// With no request alive, every block must be free or the prefix cache's.
void Engine::Impl::check_idle() {
  if (n_prefix_files > 0) return;
  idle_checked = true;
  Status status = parts.cache->check_idle();
  if (status.is_ok() && parts.host_program) status = parts.host_program->check_idle();
  if (status.is_ok()) return;
  spdlog::critical("idle self-check: {}", status.message());
  n_leaks.fetch_add(1);
  metrics.block_leaks.Increment();
#ifndef NDEBUG
  std::abort();
#endif
}

}  // namespace turbo::engine
