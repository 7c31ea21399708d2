// The host as one component instance sees it: a table of services, each bound to that instance.
//
// What the caller of the loader supplies (metrics sink, model, clock, ...) is in Services and must outlive every
// instance. Calls into a host may come from any thread that its service's declaration allows; the state behind them
// is guarded here. A host outlives its instance.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/abi/draft/drafters.h>
#include <turbo/abi/host.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "loader/options.h"

namespace spdlog {
class logger;
}

namespace turbo::loader {

/// Where the numbers of plugins go. Any thread; must not throw.
class MetricsSink {
 public:
  virtual ~MetricsSink() = default;
  virtual void counter_add(const std::string& component, const std::string& name, double value) = 0;
  virtual void gauge_set(const std::string& component, const std::string& name, double value) = 0;
};

/// The target model, for turbo.host.model/1. Threads as in turbo/abi/host.h.
class ModelProvider {
 public:
  virtual ~ModelProvider() = default;
  virtual const turbo_model_facts* facts() = 0;
  /// Fills view; shape {rows, cols}.
  virtual Status tensor(const std::string& name, turbo_view& view) = 0;
  virtual Result<std::vector<int32_t>> encode(std::string_view text) = 0;
  /// Bytes of a token, alive as long as the provider; not_found for an id outside the vocabulary.
  virtual Result<std::string_view> token_bytes(int32_t id) = 0;
};

/// Bytes in use by tag, over all components. Any thread.
class MemoryTags {
 public:
  void add(const std::string& tag, uint64_t bytes);
  void remove(const std::string& tag, uint64_t bytes);
  std::map<std::string, uint64_t> bytes_by_tag() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, uint64_t> bytes_;
};

struct Services {
  std::shared_ptr<spdlog::logger> log;     // null: spdlog's default logger
  std::function<uint64_t()> now_ns;        // null: the steady clock
  MetricsSink* metrics = nullptr;          // null: dropped
  ModelProvider* model = nullptr;          // null: turbo.host.model/1 is not offered
  std::function<bool()> on_engine_thread;  // null: turbo.host.thread_check/1 is not offered
  std::shared_ptr<MemoryTags> memory;      // null: one for each resolution
  std::chrono::milliseconds worker_join_limit{10000};
};

/// Formats and codecs resolved for a tier, for turbo.host.registry/draft1. Filled before an arch pack is created.
struct Registry {
  struct Entry {
    const void* table = nullptr;
    void* instance = nullptr;
    bool operator==(const Entry&) const = default;
  };
  std::map<uint32_t, Entry> weight_formats;  // by GGUF type
  Entry kv_codecs[2];                        // by TURBO_KV_SIDE_*
  std::map<uint32_t, Entry> layer_codecs[2];  // by side, then layer: those that differ from the side's
  /// An interface of the component of a format's or codec's instance; null: it has none.
  std::function<const void*(const void* instance, const char* id)> interface;
};

/// Inner drafters of a composed one, for turbo.host.drafters/draft1.
using InnerDrafters = std::vector<turbo_inner_drafter>;

class ComponentHost {
 public:
  struct Settings {
    std::string label;  // "org.example.mine/standard", for logs and metrics
    Services services = {};
    OptionValues options = {};
    uint32_t compute_threads = 1;
    std::vector<std::filesystem::path> files = {};       // files and folders that turbo.host.file/1 may read
    const Registry* registry = nullptr;                  // arch packs only
    const turbo_host_program* const* program = nullptr;  // drafters only; what it points to may be set later
    std::shared_ptr<std::atomic<bool>> program_asked = {};  // set when the component asks for that
    const InnerDrafters* inner_drafters = nullptr;       // composed drafters only; not empty, and outlives the host
  };
  explicit ComponentHost(Settings settings);
  ~ComponentHost();
  ComponentHost(const ComponentHost&) = delete;
  ComponentHost& operator=(const ComponentHost&) = delete;

  const turbo_host* host() const { return &host_; }

  /// From here on workers are told to end and none can be started.
  void begin_stop();
  /// Join the workers; false when one has not ended within the limit. Then the host must be kept forever.
  bool join_workers();

 private:
  struct Tables;
  struct Allocation {
    uint64_t bytes;
    std::string tag;
  };

  static const void* query_service(const turbo_host* host, const char* id);
  // One static function per service call; ctx is the ComponentHost.
  static void log_write(void* ctx, uint32_t level, const char* message);
  static void* allocate(void* ctx, uint32_t memory, uint64_t bytes, uint64_t alignment, const char* tag,
                        turbo_error* error);
  static void release(void* ctx, void* pointer);
  static void account(void* ctx, uint32_t memory, const char* tag, int64_t bytes);
  template <typename Held, typename Given>
  static turbo_status get_option(void* ctx, const char* key, Given* value);
  static turbo_status get_string(void* ctx, const char* key, const char** value);
  static uint64_t now_ns(void* ctx);
  static turbo_status spawn(void* ctx, const char* name, void (*fn)(void*), void* argument, turbo_error* error);
  static uint32_t stopping(void* ctx);
  static void counter_add(void* ctx, const char* name, double value);
  static void gauge_set(void* ctx, const char* name, double value);
  static turbo_status file_size(void* ctx, const char* path, uint64_t* bytes, turbo_error* error);
  static turbo_status file_read(void* ctx, const char* path, uint64_t offset, void* dst, uint64_t bytes,
                                turbo_error* error);
  static uint32_t on_engine_thread(void* ctx);
  static turbo_status inner_drafter(void* ctx, uint32_t index, turbo_inner_drafter* inner);
  static const turbo_model_facts* model_facts(void* ctx);
  static turbo_status model_tensor(void* ctx, const char* name, turbo_view* view, turbo_error* error);
  static turbo_status model_encode(void* ctx, const char* text, uint64_t text_bytes, int32_t* ids, uint64_t* n);
  static turbo_status model_token_bytes(void* ctx, int32_t id, const char** bytes, uint64_t* n);
  static turbo_status registry_format(void* ctx, uint32_t type, const turbo_weight_format** format, void** instance,
                                      turbo_error* error);
  static turbo_status registry_codec(void* ctx, uint32_t side, uint32_t layer, const turbo_kv_codec** codec, void** instance,
                                     turbo_error* error);
  static const void* registry_interface(void* ctx, void* instance, const char* id);

  Result<std::string> allowed_file(const char* path) const;
  void metric(const char* name, double value,
              void (MetricsSink::*call)(const std::string&, const std::string&, double));
  void run_worker(const std::string& name, void (*fn)(void*), void* argument);
  spdlog::logger& log() const;

  Settings settings_;
  turbo_host host_{};
  std::unique_ptr<Tables> tables_;

  std::mutex mutex_;  // everything below
  std::condition_variable worker_ended_;
  std::vector<std::thread> workers_;
  size_t running_workers_ = 0;
  bool stopping_ = false;
  std::map<void*, Allocation> allocations_;
  std::map<std::pair<uint32_t, std::string>, uint64_t> accounted_;  // by memory and tag: what the component told of
};

}  // namespace turbo::loader
