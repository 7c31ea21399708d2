// turbo serve: the HTTP API until a signal ends it.
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include <spdlog/spdlog.h>

#include "cli/commands.h"
#include "cli/signals.h"
#include "server/server.h"

namespace turbo::cli {
namespace {

// The first signal drains what is served; before there is anything to drain, and from the second one on, signals end
// the process at once.
class StopRequest {
 public:
  // The engine cannot go on.
  void fail(const Status& status) {
    std::lock_guard lock(mutex_);
    failure_ = status;
    raised_ = true;
    changed_.notify_all();
  }
  Status failure() {
    std::lock_guard lock(mutex_);
    return failure_;
  }
  void raise(int count) {
    std::lock_guard lock(mutex_);
    if (count > 1 || !serving_) _exit(kInterrupted);
    raised_ = true;
    changed_.notify_all();
  }
  void serving() {
    std::lock_guard lock(mutex_);
    serving_ = true;
  }
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return raised_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  bool raised_ = false;
  Status failure_;
};

}  // namespace

int run_serve(const Arguments& arguments) {
  int exit_code = kOk;
  const std::optional<profile::Profile> profile = load_profile(arguments, exit_code);
  if (!profile) return exit_code;
  StopRequest stop;
  SignalWatch watch([&](int, int count) { stop.raise(count); });

  // The socket opens first: a port in use is known before the weights are read, and clients see "loading".
  Result<std::unique_ptr<server::Server>> server = server::Server::start(*profile);
  // A faulty setting is the user's; an address that cannot be had is the machine's refusal.
  if (!server) return fail(server.status(), arguments, server.status().code() == Code::invalid_argument ? kUsage : kFailed);
  std::shared_ptr<engine::Runtime> runtime = load_runtime(*profile, arguments, exit_code);
  if (!runtime) return exit_code;
  stop.serving();
  runtime->engine().on_failure([&](const Status& status) { stop.fail(status); });
  (*server)->attach(runtime);
  if (!arguments.style.quiet) {
    print_note("\n{}", runtime->resolved().text);
    print_note("\nturbo serves {} (context {}) · listening on {}\n", runtime->model_name(), runtime->context(), (*server)->url());
    const engine::MemoryReport memory = runtime->memory();
    print_note("  memory:     weights {} MiB, KV pool {} tokens in {} MiB ({} bytes a token), up to {} requests at once\n",
               memory.weights_bytes >> 20, uint64_t{runtime->engine().snapshot().kv_blocks_total} * TURBO_KV_BLOCK,
               memory.kv_pool_bytes >> 20, memory.kv_bytes_per_token, runtime->engine().limits().max_running);
    if (memory.draft_kv_pool_bytes > 0)
      print_note("  draft model: weights {} MiB, KV pool {} MiB\n", memory.draft_weights_bytes >> 20, memory.draft_kv_pool_bytes >> 20);
    if (profile->server.web_page) print_note("  chat page:  {}/\n", (*server)->url());
    print_note("  endpoint:   {}/v1/chat/completions\n  stop with Ctrl-C\n", (*server)->url());
  }
  stop.wait();
  spdlog::info("draining");
  (*server)->drain(profile->server.drain_timeout_ms);
  if (const Status failure = stop.failure(); !failure.is_ok())
    return fail(failure.with_hint("start turbo again once the device works; a supervisor can do so"), arguments);
  return kOk;
}

}  // namespace turbo::cli
