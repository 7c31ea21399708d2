// The engine: a few verbs over one thread that owns every request, KV block and drafter session.
//
// Other threads submit, cancel, read statistics, drain and shut down; nothing else of the state is shared.
// CONTRACT.md beside this file lists the invariants and the tests that hold them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "base/status.h"
#include "engine/metrics.h"
#include "engine/parts.h"
#include "engine/request.h"
#include "spec/step_cost.h"

namespace turbo::engine {

using RequestId = uint64_t;

struct EngineLimits {
  uint32_t max_running = 32;     // sequences computed at once
  uint32_t max_queue = 256;      // waiting; more are refused
  uint32_t max_step_rows = 512;  // row budget of one step
  uint32_t prefill_chunk = 128;  // rows of one request in one step
  uint32_t max_logit_rows = 64;
  uint32_t context = 0;          // positions of one sequence
  uint32_t step_ms = 0;          // longest time prompts may add to the rhythm of running streams; 0 = no bound
  bool prefix_cache = true;      // false: no request reuses another's blocks
};

struct Snapshot {
  uint32_t running = 0, waiting = 0;
  uint32_t kv_blocks_total = 0;
  uint32_t kv_blocks_used = 0;    // held by requests
  uint32_t kv_blocks_cached = 0;  // held by the prefix cache alone
  uint64_t steps = 0, preemptions = 0, leaks = 0;
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
  /// [any thread] The listener has all it wanted (a stop string was met): as cancel, but it ends with FinishReason::stop.
  bool finish(RequestId id);
  /// [any thread] Copies of counters; may be one step old.
  Snapshot snapshot() const;
  /// [any thread] Refuse new requests, wait up to `timeout_ms` for the others, then cancel them. True when all finished
  /// by themselves.
  bool drain(uint64_t timeout_ms);

  /// [any thread] Ok, or why the engine has stopped for good: the device was lost. What ran has failed with it then, and
  /// submit() refuses with it.
  Status failure() const;
  /// [any thread] Called once when that happens, after the listeners, on the engine thread (at once on this one if it
  /// has happened). Must return quickly and call nothing of the engine but failure().
  void on_failure(std::function<void(const Status&)> action);

  /// [any thread] The live requests, oldest first. Waits for the running step. cancelled: the engine ended.
  Result<std::vector<RequestInfo>> requests(bool with_prompts);

  // The prefix cache. [any thread, not a listener] Each waits for running steps, block by block.

  /// Drop every cached block that no request holds; how many.
  Result<uint32_t> flush_prefix_cache();
  /// Write the cached blocks that begin `tokens` to a file, which is replaced only when it is whole. Returns the
  /// positions saved. not_found: nothing of them is cached; resource_exhausted: the disk is full.
  Result<uint32_t> save_prefix(std::span<const int32_t> tokens, const std::string& salt, const std::filesystem::path& path);
  /// Put the blocks of such a file into the cache; returns the positions. The file is not trusted: corrupt_input when
  /// it is damaged, unsupported when it is of another model, codec or setting; the cache then has nothing wrong in it.
  Result<uint32_t> restore_prefix(const std::string& salt, const std::filesystem::path& path);

  /// Seconds of steps that verify drafts of one request, by their rows (verify_cost.h). [any thread, not a listener]
  /// Running streams wait meanwhile. resource_exhausted: the pool has no room for `depth` positions.
  Result<std::vector<spec::RowCost>> measure_verify_cost(std::span<const uint32_t> rows, uint32_t depth, uint32_t reps);

  const EngineLimits& limits() const;
  Metrics& metrics();

  struct Impl;

 private:
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace turbo::engine
