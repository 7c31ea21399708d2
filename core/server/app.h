// The API over a transport: which route answers what, in which state of the server. Handlers run on the exchanges'
// strands, several at once; what reads a body runs on workers. What they share is guarded here.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <atomic>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "profile/profile.h"
#include "server/access.h"
#include "server/backend.h"
#include "server/generation.h"
#include "server/generation_request.h"
#include "server/http.h"
#include "server/workers.h"

namespace turbo::server {

class App {
 public:
  App(const profile::Profile& profile);

  /// Until it is called every route is 503.
  void set_access(AccessRules rules);
  void attach(std::shared_ptr<Backend> backend);
  void begin_drain() { draining_ = true; }
  std::shared_ptr<Backend> backend() const;
  LiveRequests& live() { return *live_; }
  /// Drops the work that waits and joins what runs; its exchanges must be over.
  void stop_work() { workers_.stop(); }

  /// [strand] Answers, now or later. Never throws.
  void handle(const std::shared_ptr<Exchange>& exchange);

 private:
  struct Route;
  struct Call {
    const std::shared_ptr<Exchange>& exchange;
    std::shared_ptr<Backend> backend;  // null while loading
    std::string tail;  // of the path, for routes that end in '/'
  };
  // What a worker computes from.
  struct Work {
    const Json& body;
    Backend& backend;
    const std::atomic<bool>& gone;  // set when the client leaves: the outcome no longer matters
  };
  // What it computes: a JSON answer, a generation to begin, or a refusal.
  using Outcome = std::variant<std::string, GenerationPlan, ApiError>;
  static const std::vector<Route>& routes();
  static const Route* find_route(std::string_view path, std::string& tail);

  void dispatch(const std::shared_ptr<Exchange>& exchange);
  void respond(const std::shared_ptr<Exchange>& exchange, const ApiError& error);
  void respond(const std::shared_ptr<Exchange>& exchange, const Json& body);
  void respond_text(const std::shared_ptr<Exchange>& exchange, std::string json);
  void hand_over(const Call& call, const Route& route);
  Outcome compute(const Route& route, std::string body, Backend& backend, const std::atomic<bool>& gone);
  void deliver(const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<Backend>& backend, Outcome outcome);
  void add_cors(const std::shared_ptr<Exchange>& exchange);
  void preflight(const std::shared_ptr<Exchange>& exchange, const Route* route);
  void count(const char* route, int status);

  void health(Call& call);
  void models(Call& call);
  void model(Call& call);
  Outcome chat(const Work& work);
  Outcome completions(const Work& work);
  Outcome count_chat(const Work& work);
  Outcome tokenize(const Work& work);
  Outcome detokenize(const Work& work);
  Outcome apply_template(const Work& work);
  Outcome cancel(const Work& work);
  Outcome abort_request(const Work& work);
  Outcome cancel_by(const Work& work, const char* field);
  Outcome slots(const Work& work);
  Outcome flush_cache(const Work& work);
  Outcome save_prefix(const Work& work);
  Outcome restore_prefix(const Work& work);
  static constexpr size_t kTokenizeBytes = 4 << 20;  // of text in one tokenization that is not for a generation
  Checked<std::filesystem::path> prefix_file(const Work& work) const;
  void metrics(Call& call);
  void props(Call& call);
  void version(Call& call);
  void page(Call& call);
  void not_supported(Call& call);
  void generate(const std::shared_ptr<Exchange>& exchange, const std::shared_ptr<Backend>& backend, GenerationPlan plan);

  const profile::Profile profile_;
  ServerLimits limits_;
  AccessRules access_;
  std::atomic<bool> draining_{false};
  mutable std::mutex mutex_;
  std::shared_ptr<Backend> backend_;                               // guarded by mutex_
  std::map<std::string, std::weak_ptr<Generation>> generations_;   // by answer id; guarded by mutex_
  size_t sweep_at_ = 64;                                           // guarded by mutex_
  const std::shared_ptr<LiveRequests> live_ = std::make_shared<LiveRequests>();
  prometheus::Registry registry_;
  prometheus::Family<prometheus::Counter>& requests_total_;
  Workers workers_;  // last: its jobs use the others
};

/// The built-in page: one document that needs nothing else.
extern const char* const kWebPage;
extern const char* const kLoadingPage;

}  // namespace turbo::server
