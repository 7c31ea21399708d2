#include <fmt/format.h>

#include "engine/runtime.h"
#include "server/backend.h"
#include "server/server.h"

namespace turbo::server {
namespace {

class RuntimeBackend : public Backend {
 public:
  explicit RuntimeBackend(std::shared_ptr<engine::Runtime> runtime) : runtime_(std::move(runtime)) {}

  Result<uint64_t> submit(engine::Request request, std::shared_ptr<engine::Listener> listener) override {
    return runtime_->engine().submit(std::move(request), std::move(listener));
  }
  void cancel(uint64_t id) override { runtime_->engine().cancel(id); }
  bool drain(uint64_t timeout_ms) override { return runtime_->engine().drain(timeout_ms); }

  Status failure() const override { return runtime_->engine().failure(); }

  Result<const text::Tokenizer*> tokenizer() const override { return runtime_->tokenizer(); }
  Result<const text::ChatTemplate*> chat_template() const override { return runtime_->chat_template(); }
  engine::Sampling default_sampling() const override { return runtime_->default_sampling(); }
  std::string model_name() const override { return runtime_->model_name(); }
  std::string model_path() const override { return runtime_->profile().model.path.string(); }
  uint32_t context() const override { return runtime_->context(); }
  int32_t vocab_size() const override { return static_cast<int32_t>(runtime_->config().vocab_size); }
  uint32_t max_running() const override { return runtime_->engine().limits().max_running; }
  Json plugins() const override {
    const auto& plan = runtime_->resolved().json;
    for (const char* name : {"slots", "plugins"})
      if (plan.is_object() && plan.contains(name)) return plan[name];
    return Json::array();
  }
  std::vector<prometheus::MetricFamily> metrics() const override {
    return runtime_->metrics();
  }

 private:
  const std::shared_ptr<engine::Runtime> runtime_;
};

}  // namespace

// Here, so that what only needs a backend does not need the engine.
void Server::attach(std::shared_ptr<engine::Runtime> runtime) {
  attach(std::shared_ptr<Backend>(std::make_shared<RuntimeBackend>(std::move(runtime))));
}

}  // namespace turbo::server
