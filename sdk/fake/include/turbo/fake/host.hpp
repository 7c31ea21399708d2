// A host with scripted services: plugin tests need no engine. Link turbo::sdk_fake.
//
//   turbo::fake::Host host;
//   host.options["depth"] = int64_t{3};
//   turbo::fake::Component drafter(turbo_plugin_query, "drafter", "mine", TURBO_TIER_CPU, host);
//   const auto* table = drafter.interface<turbo_drafter>(TURBO_DRAFTER_1);
//
// Set fields up before the component is created. Log, metrics, clock and allocations may be used by workers at the
// same time; the rest belongs to the test's thread.
#pragma once

#include <turbo/abi/draft/arch_pack.h>
#include <turbo/abi/draft/drafters.h>
#include <turbo/abi/plugin.h>
#include <turbo/fake/draft_model.hpp>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

namespace turbo::fake {

using Option = std::variant<std::string, int64_t, double, bool>;

struct LogLine {
  uint32_t level;
  std::string message;
};

struct Tensor {
  uint64_t rows = 0, cols = 0;
  std::vector<float> values;
};

class Host {
 public:
  Host();
  ~Host();  // joins the workers
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const turbo_host* raw() const { return &host_; }

  // Scripted input.
  std::set<std::string> absent;                            // service ids answered with null
  std::map<std::string, Option> options;                   // config
  std::map<std::string, std::vector<uint8_t>> files;       // path -> content
  std::map<std::string, Tensor> tensors;                   // target's tensors, handed out as f32
  std::vector<std::string> vocabulary;                     // token id -> bytes; encode takes the longest match
  turbo_model_facts facts{};                               // n_layers etc.; architecture is "fake"
  uint64_t clock_ns = 0;                                   // advance() adds
  uint32_t compute_threads = 1;
  uint64_t fail_allocation = 0;                            // n > 0: the n-th allocation from now is refused

  struct Format { const turbo_weight_format* table = nullptr; void* instance = nullptr; };
  struct Codec { const turbo_kv_codec* table = nullptr; void* instance = nullptr; };
  std::map<uint32_t, Format> formats;                      // registry: GGUF type -> format
  Codec codecs[2];                                         // registry: by side
  const turbo_arch_pack* pack = nullptr;                   // program service; absent when both are null
  DraftModel* draft_model = nullptr;                       // what the program service opens as a model; null: it opens none
  void* pack_instance = nullptr;
  std::map<std::string, const turbo_weight*> target_weights;
  std::vector<turbo_inner_drafter> inner_drafters;         // drafters service; empty: service absent
  struct Blocks { std::vector<int32_t> blocks, open_blocks; };
  std::map<uint32_t, Blocks> block_tables;                 // by sequence

  // What the component did.
  std::vector<LogLine> log() const;
  bool logged(const std::string& part) const;              // any line that contains it
  double counter(const std::string& name) const;           // 0 when never added to
  double gauge(const std::string& name) const;
  uint64_t live_bytes(const std::string& tag = {}) const;  // allocated and not released; empty: all tags
  int64_t accounted_bytes(const std::string& tag = {}) const;  // told of through alloc/1's account; empty: all tags
  uint64_t leaks() const;                                  // allocations not released
  uint64_t bad_releases() const;                           // of pointers this host never gave
  uint64_t allocations() const;
  std::vector<std::string> worker_names() const;
  std::vector<turbo_kv_pool_desc> drafter_pools;           // asked for through the program service

  void advance(uint64_t ns);
  void stop_workers();                                     // asks them to end, then joins

 private:
  struct Services;
  struct Allocation { std::string tag; uint64_t bytes; };
  static const void* query(const turbo_host* host, const char* id);

  turbo_host host_{};
  std::unique_ptr<Services> services_;
  mutable std::mutex mutex_;
  std::vector<LogLine> log_;
  std::map<std::string, double> counters_, gauges_;
  std::unordered_map<void*, Allocation> live_;
  std::map<std::string, int64_t> accounted_;
  uint64_t n_allocations_ = 0, bad_releases_ = 0;
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> workers_;
  std::vector<std::string> worker_names_;
};

/// A plugin library opened with immediate binding; throws std::runtime_error with the loader's sentence. Stays mapped.
class Library {
 public:
  explicit Library(const std::string& path);
  turbo_plugin_query_fn query() const { return query_; }

 private:
  turbo_plugin_query_fn query_ = nullptr;
};

/// One component instance, created and started; stopped and destroyed at the end. Throws std::runtime_error with the
/// component's message when it cannot be had.
class Component {
 public:
  Component(turbo_plugin_query_fn query, const std::string& kind, const std::string& name, uint32_t tier, Host& host);
  ~Component();
  Component(const Component&) = delete;
  Component& operator=(const Component&) = delete;

  void* self() const { return self_; }
  const turbo_component& descriptor() const { return *component_; }
  template <typename Table>
  const Table* interface(const char* id) const {
    return static_cast<const Table*>(component_->query_interface(id));
  }

 private:
  Host& host_;
  const turbo_component* component_ = nullptr;
  void* self_ = nullptr;
};

/// The component of a plugin, or null.
const turbo_component* find_component(const turbo_plugin& plugin, const std::string& kind, const std::string& name, uint32_t tier);

}  // namespace turbo::fake
