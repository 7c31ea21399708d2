// The engine: five verbs over one thread that owns every request, KV block and drafter session.
//
// Other threads submit, cancel, read statistics, drain and shut down; nothing else of the state is shared.
// CONTRACT.md beside this file lists the invariants and the tests that hold them.
#pragma once

#include <functional>
#include <memory>

#include "base/status.h"
#include "engine/metrics.h"
#include "engine/parts.h"
#include "engine/request.h"

namespace turbo::engine {

using RequestId = uint64_t;

struct EngineLimits {
  uint32_t max_running = 32;     // sequences computed at once
  uint32_t max_queue = 256;      // waiting; more are refused
  uint32_t max_step_rows = 512;  // row budget of one step
  uint32_t prefill_chunk = 128;  // rows of one request in one step
  uint32_t max_logit_rows = 64;
  uint32_t context = 0;          // positions of one sequence
};

struct Snapshot {
  uint32_t running = 0, waiting = 0;
  uint32_t kv_blocks_total = 0, kv_blocks_used = 0;
  uint64_t steps = 0;
  bool draining = false;
};

class Engine {
 public:
  /// Starts the thread. `parts` must outlive the engine.
  static Result<std::unique_ptr<Engine>> start(EngineParts parts, const EngineLimits& limits);
  /// Cancels what runs and joins.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// [any thread] Queue a request. invalid_argument: empty or too long prompt, token outside the vocabulary;
  /// resource_exhausted: queue full, or larger than the whole KV pool; cancelled: draining. The listener is held
  /// until on_finish has returned.
  Result<RequestId> submit(Request request, std::shared_ptr<Listener> listener);
  /// [any thread] Ends the request within one step with FinishReason::cancelled; unknown ids are ignored.
  bool cancel(RequestId id);
  /// [any thread] Copies of counters; may be one step old.
  Snapshot snapshot() const;
  /// [any thread] Refuse new requests, wait up to `timeout_ms` for the others, then cancel them. True when all finished
  /// by themselves.
  bool drain(uint64_t timeout_ms);

  /// [any thread] Ok, or why the engine has stopped for good: the device was lost. What ran has failed with it then, and
  /// submit() refuses with it.
  Status failure() const;
  /// [any thread] Called once when that happens, after the listeners, on the engine thread (at once on this one if it has
  /// happened). Must return quickly and call nothing of the engine but failure().
  void on_failure(std::function<void(const Status&)> action);

  const EngineLimits& limits() const;
  Metrics& metrics();

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turbo::engine
