// The engine's inside, shared by engine.cpp (verbs, intake, loop), schedule.cpp (who runs, which rows), advance.cpp
// (what a step changed) and prefix_store.cpp (saved prefixes). Engine thread only, but for the members marked so.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <unordered_map>

#include "base/clock.h"
#include "engine/engine.h"
#include "engine/host_program.h"
#include "engine/mailbox.h"
#include "engine/speculator.h"
#include "engine/step_runner.h"
#include "kv/prefix_file.h"
#include "sched/pace.h"
#include "spec/draft_gate.h"
#include "spec/draft_length.h"

namespace turbo::engine {

// A request from its arrival to its end.
struct Live {
  sched::Sequence sequence;
  Request request;
  std::shared_ptr<Listener> listener;  // null: finished
  uint64_t seed = 0;
  uint64_t submitted_ns = 0, admitted_ns = 0, first_token_ns = 0, last_token_ns = 0;
  uint32_t n_generated = 0;
  uint32_t n_cached = 0;     // prompt positions taken from the prefix cache
  uint32_t n_scored = 0;     // prompt rows whose scores were told
  uint32_t n_counted = 0;    // prompt positions that the metrics have seen
  uint32_t n_preemptions = 0;
  spec::DraftTree draft;
  Speculation speculation;
  spec::DraftLength draft_length;
  bool drafting = false;     // has a drafter session
  uint32_t n_observed = 0;   // tokens that the session has seen
  uint32_t n_read = 0;       // of them before its last proposal
  uint64_t draft_ns_seen = 0;  // the engine's time in the drafter up to the last token
};

// Something to tell a listener once the next step is on its way.
struct Event {
  std::shared_ptr<Listener> listener;
  std::vector<Token> tokens;
  std::optional<Finish> finish;
};

struct Engine::Impl {
  Impl(EngineParts parts, const EngineLimits& limits, Speculator speculator)
      : parts(std::move(parts)), limits(limits), metrics(this->parts.drafter_name), speculator(std::move(speculator)),
        mailbox(limits.max_queue) {}

  // engine.cpp
  void loop();
  void accept(Mailbox::Mail& mail);
  void accept_one(Submission& submission);
  void expire_deadlines();
  void deliver();
  void count_time(uint64_t begin);
  void fail_all();
  void publish();
  void check_idle();
  /// [any thread but the engine's] Run `task` on the engine thread and wait. False when the engine ended.
  bool ask(const std::function<void()>& task);

  // prefix_store.cpp
  /// [any] What a saved prefix must agree with.
  Result<kv::PrefixHeader> prefix_header() const;

  // schedule.cpp
  void admit();
  void begin_running(Live& request);
  void preempt(sched::Sequence& sequence);
  void adopt_late();
  void adopted(Live& request, uint32_t before);
  void learn_step_cost();
  void propose();
  uint32_t draft_slots(Live& request, uint32_t other_rows, double other_tokens, double other_seconds);
  bool make_room(sched::Sequence& sequence, uint64_t slots);
  void prepare(const sched::StepPlan& plan);
  void step();

  // advance.cpp
  void apply(const sched::RowGroup& group, GroupOutput& output);
  void tell_scores(Live& live, const sched::RowGroup& group, const GroupOutput& output);
  Status emit(Live& live, const sched::RowGroup& group, GroupOutput& output);
  void count(Live& live, const sched::RowGroup& group, const spec::Acceptance& acceptance, size_t kept, size_t n_emitted);
  Status compact(Live& live, uint32_t root, std::span<const uint32_t> nodes);
  void observe(Live& live, const sched::RowGroup& group, uint32_t first_row, const spec::Acceptance* acceptance);
  void finish(Live& live, FinishReason reason, Status status = {}, int32_t stop_token = -1);
  void remove_finished();

  EngineParts parts;
  EngineLimits limits;
  Metrics metrics;  // [any]
  Speculator speculator;
  std::unique_ptr<StepRunner> runner;
  Mailbox mailbox;  // [any]
  sched::Budget budget;
  sched::StepPace pace;
  spec::StepCost step_cost;           // unknown: drafts are as long as they may be
  spec::DraftCost draft_cost;
  spec::DraftGate draft_gate;
  spec::DraftLength typical_length;   // of all requests, where a new one begins
  sched::ClientShares shares;

  std::unordered_map<uint64_t, std::unique_ptr<Live>> live;
  sched::WaitingQueue waiting;
  std::vector<sched::Sequence*> running;  // by rank
  std::vector<uint64_t> finished;
  std::vector<GroupInput> inputs;
  std::vector<GroupOutput> outputs;
  std::vector<Event> outbox;
  uint64_t deliver_ns = 0, draft_ns = 0;  // of this turn of the loop
  uint64_t earlier_draft_ns = 0;          // of all turns before
  uint32_t step_rows = 0;                 // of this step, and what it took to compute and sample them
  uint64_t step_run_ns = 0;
  uint64_t step_emitted = 0;
  uint64_t n_faults_told = 0, n_not_ready_told = 0;  // of the speculator's, in the metrics
  std::random_device entropy;
  uint32_t n_prefix_files = 0;  // being saved or restored: they hold blocks without a request
  bool idle_checked = true;

  std::atomic<uint64_t> next_id{1};
  std::atomic<uint32_t> n_running{0}, n_blocks_used{0}, n_blocks_cached{0}, n_alive{0};
  std::atomic<uint64_t> n_steps{0}, n_preemptions{0}, n_leaks{0};
  std::mutex failure_mutex;
  Status failure;                                     // guarded by failure_mutex; written on the engine thread
  std::function<void(const Status&)> failure_action;  // guarded by failure_mutex
  bool lost = false;                                  // a request failed for good; engine thread
  std::mutex idle_mutex;
  std::condition_variable idle;
  std::thread thread;
};

}  // namespace turbo::engine
