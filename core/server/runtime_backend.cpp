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
  void finish(uint64_t id) override { runtime_->engine().finish(id); }
  bool drain(uint64_t timeout_ms) override { return runtime_->engine().drain(timeout_ms); }

  Status failure() const override { return runtime_->engine().failure(); }

  Result<std::vector<engine::RequestInfo>> requests(bool with_prompts) override { return runtime_->engine().requests(with_prompts); }
  Result<uint32_t> flush_prefix_cache() override { return runtime_->engine().flush_prefix_cache(); }
  Result<uint32_t> save_prefix(std::span<const int32_t> tokens, const std::string& salt, const std::filesystem::path& path) override {
    return runtime_->engine().save_prefix(tokens, salt, path);
  }
  Result<uint32_t> restore_prefix(const std::string& salt, const std::filesystem::path& path) override {
    return runtime_->engine().restore_prefix(salt, path);
  }

  Result<const text::Tokenizer*> tokenizer() const override { return runtime_->tokenizer(); }
  Result<const text::ChatTemplate*> chat_template() const override { return runtime_->chat_template(); }
  engine::Sampling default_sampling() const override { return runtime_->default_sampling(); }
  std::string model_name() const override { return runtime_->model_name(); }
  std::string model_path() const override { return runtime_->profile().model.path.string(); }
  uint32_t context() const override { return runtime_->context(); }
  int32_t vocab_size() const override { return static_cast<int32_t>(runtime_->config().vocab_size); }
  uint32_t max_running() const override { return runtime_->engine().limits().max_running; }
  Json cache() const override {
    const engine::MemoryReport memory = runtime_->memory();
    const profile::Profile& profile = runtime_->profile();
    return Json{{"k", profile.kv.k},
                {"v", profile.kv.v},
                {"pool_bytes", memory.kv_pool_bytes},
                {"bytes_per_token", memory.kv_bytes_per_token},
                {"pool_tokens", uint64_t{runtime_->engine().snapshot().kv_blocks_total} * TURBO_KV_BLOCK},
                {"prefix_cache", profile.engine.prefix_cache}};
  }
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
