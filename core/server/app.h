// The API over a transport: which route answers what, in which state of the server. Handlers run on the exchanges'
// strands, several at once; what they share is guarded here.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <atomic>
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

  /// [strand] Answers, now or later. Never throws.
  void handle(const std::shared_ptr<Exchange>& exchange);

 private:
  struct Route;
  struct Call {
    const std::shared_ptr<Exchange>& exchange;
    std::shared_ptr<Backend> backend;  // null while loading
    Json body;
    std::string tail;  // of the path, for routes that end in '/'
  };
  static const std::vector<Route>& routes();
  static const Route* find_route(std::string_view path, std::string& tail);

  void dispatch(const std::shared_ptr<Exchange>& exchange);
  void respond(const std::shared_ptr<Exchange>& exchange, const ApiError& error);
  void respond(const std::shared_ptr<Exchange>& exchange, const Json& body);
  void add_cors(const std::shared_ptr<Exchange>& exchange);
  void preflight(const std::shared_ptr<Exchange>& exchange, const Route* route);
  void count(const char* route, int status);

  void health(Call& call);
  void models(Call& call);
  void model(Call& call);
  void chat(Call& call);
  void completions(Call& call);
  void count_chat(Call& call);
  void tokenize(Call& call);
  void detokenize(Call& call);
  void apply_template(Call& call);
  void metrics(Call& call);
  void cancel(Call& call);
  void props(Call& call);
  void version(Call& call);
  void page(Call& call);
  void not_supported(Call& call);
  void slots(Call& call);
  void generate(Call& call, Checked<GenerationPlan> plan);

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
};

/// The built-in page: one document that needs nothing else.
extern const char* const kWebPage;
extern const char* const kLoadingPage;

}  // namespace turbo::server
