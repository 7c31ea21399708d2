// The narrow door between HTTP and the model: everything the routes need, nothing of how it is computed. The engine's
// runtime stands behind it, or a scripted fake in tests. Every method may be called from any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <prometheus/metric_family.h>

#include "base/status.h"
#include "engine/request.h"
#include "server/json_body.h"
#include "text/template/chat_template.h"
#include "text/tokenizer.h"

namespace turbo::engine {
class Runtime;
}

namespace turbo::server {

class Backend {
 public:
  virtual ~Backend() = default;

  /// As engine::Engine::submit and cancel. The listener is held until its on_finish has returned.
  virtual Result<uint64_t> submit(engine::Request request, std::shared_ptr<engine::Listener> listener) = 0;
  virtual void cancel(uint64_t id) = 0;
  /// Nothing more is wanted of it.
  virtual void finish(uint64_t id) = 0;
  /// Refuse new requests, wait for the others, then cancel them; true when all finished by themselves.
  virtual bool drain(uint64_t timeout_ms) = 0;

  /// The live requests. Waits for the running step; not on an I/O thread.
  virtual Result<std::vector<engine::RequestInfo>> requests(bool with_prompts) = 0;
  /// As engine::Engine; they wait too.
  virtual Result<uint32_t> flush_prefix_cache() = 0;
  virtual Result<uint32_t> save_prefix(std::span<const int32_t> tokens, const std::string& salt, const std::filesystem::path& path) = 0;
  virtual Result<uint32_t> restore_prefix(const std::string& salt, const std::filesystem::path& path) = 0;

  /// Why the engine has stopped for good, or ok.
  virtual Status failure() const = 0;

  virtual Result<const text::Tokenizer*> tokenizer() const = 0;
  virtual Result<const text::ChatTemplate*> chat_template() const = 0;
  virtual engine::Sampling default_sampling() const = 0;
  virtual std::string model_name() const = 0;
  virtual std::string model_path() const = 0;
  virtual uint32_t context() const = 0;
  virtual int32_t vocab_size() const = 0;
  virtual uint32_t max_running() const = 0;
  /// Which plugin serves which slot: an array for /props.
  virtual Json plugins() const = 0;
  /// Sizes of the KV pool and what the codecs are: an object for /props.
  virtual Json cache() const = 0;
  virtual std::vector<prometheus::MetricFamily> metrics() const = 0;
};

}  // namespace turbo::server
