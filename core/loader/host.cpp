// Life of a host, the service look-up, and the small services; memory, files and the model are in host_services.cpp.
#include "loader/host.h"

#include <pthread.h>
#include <spdlog/spdlog.h>
#include <turbo/abi/base.h>

#include <cstring>

#include "loader/host_tables.h"
#include "loader/text.h"

namespace turbo::loader {
namespace {

constexpr size_t max_workers = 64;

ComponentHost* self_of(void* ctx) { return static_cast<ComponentHost*>(ctx); }

bool is_metric_name(const std::string& name) {
  return !name.empty() && name.find_first_not_of("abcdefghijklmnopqrstuvwxyz_") == std::string::npos;
}

}  // namespace

void MemoryTags::add(const std::string& tag, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  bytes_[tag] += bytes;
}

void MemoryTags::remove(const std::string& tag, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = bytes_.find(tag);
  if (found == bytes_.end()) return;
  found->second -= std::min(bytes, found->second);
  if (found->second == 0) bytes_.erase(found);
}

std::map<std::string, uint64_t> MemoryTags::bytes_by_tag() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

ComponentHost::ComponentHost(Settings settings) : settings_(std::move(settings)), tables_(std::make_unique<Tables>()) {
  if (!settings_.services.memory) settings_.services.memory = std::make_shared<MemoryTags>();
  host_ = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, this, &query_service};
  Tables& t = *tables_;
  t.log = {sizeof t.log, 0, this, &log_write};
  t.alloc = {sizeof t.alloc, 0, this, &allocate, &release, &account};
  t.config = {sizeof t.config,
              0,
              this,
              &get_string,
              &get_option<int64_t, int64_t>,
              &get_option<double, double>,
              &get_option<bool, uint32_t>};
  t.clock = {sizeof t.clock, 0, this, &now_ns};
  t.threads = {sizeof t.threads, std::max(settings_.compute_threads, 1u), this, &spawn, &stopping};
  t.metrics = {sizeof t.metrics, 0, this, &counter_add, &gauge_set};
  t.file = {sizeof t.file, 0, this, &file_size, &file_read};
  t.thread_check = {sizeof t.thread_check, 0, this, &on_engine_thread};
  t.model = {sizeof t.model, 0, this, &model_facts, &model_tensor, &model_encode, &model_token_bytes};
  t.registry = {sizeof t.registry, 0, this, &registry_format, &registry_codec, &registry_interface};
  const InnerDrafters* inner = settings_.inner_drafters;
  t.drafters = {sizeof t.drafters, inner ? static_cast<uint32_t>(inner->size()) : 0, this, &inner_drafter};
}

ComponentHost::~ComponentHost() {
  begin_stop();
  for (std::thread& worker : workers_)
    if (worker.joinable()) worker.join();
  for (const auto& [pointer, allocation] : allocations_) {
    log().warn("{}: {} bytes of '{}' were not released", settings_.label, allocation.bytes, allocation.tag);
    settings_.services.memory->remove(allocation.tag, allocation.bytes);
    std::free(pointer);
  }
  for (const auto& [place, bytes] : accounted_) {
    log().warn("{}: {} bytes of '{}' are still accounted for", settings_.label, bytes, place.second);
    settings_.services.memory->remove(place.second, bytes);
  }
}

spdlog::logger& ComponentHost::log() const {
  return settings_.services.log ? *settings_.services.log : *spdlog::default_logger_raw();
}

const void* ComponentHost::query_service(const turbo_host* host, const char* id) {
  if (!host || !host->ctx || !id) return nullptr;
  const ComponentHost& self = *self_of(host->ctx);
  const Tables& t = *self.tables_;
  const std::string_view wanted(id, strnlen(id, 128));
  if (wanted == TURBO_HOST_LOG) return &t.log;
  if (wanted == TURBO_HOST_ALLOC) return &t.alloc;
  if (wanted == TURBO_HOST_CONFIG) return &t.config;
  if (wanted == TURBO_HOST_CLOCK) return &t.clock;
  if (wanted == TURBO_HOST_THREADS) return &t.threads;
  if (wanted == TURBO_HOST_METRICS) return &t.metrics;
  if (wanted == TURBO_HOST_FILE) return &t.file;
  if (wanted == TURBO_HOST_THREAD_CHECK) return self.settings_.services.on_engine_thread ? &t.thread_check : nullptr;
  if (wanted == TURBO_HOST_MODEL) return self.settings_.services.model ? &t.model : nullptr;
  if (wanted == TURBO_HOST_REGISTRY_DRAFT) return self.settings_.registry ? &t.registry : nullptr;
  if (wanted == TURBO_HOST_PROGRAM_DRAFT) {
    if (self.settings_.program_asked) self.settings_.program_asked->store(true, std::memory_order_relaxed);
    return self.settings_.program ? *self.settings_.program : nullptr;
  }
  if (wanted == TURBO_HOST_DRAFTERS_DRAFT) return t.drafters.count > 0 ? &t.drafters : nullptr;
  return nullptr;
}

void ComponentHost::log_write(void* ctx, uint32_t level, const char* message) {
  if (!ctx || !message) return;
  const ComponentHost& self = *self_of(ctx);
  constexpr spdlog::level::level_enum levels[] = {spdlog::level::trace, spdlog::level::debug, spdlog::level::info,
                                                  spdlog::level::warn, spdlog::level::err};
  self.log().log(levels[std::min(level, TURBO_LOG_ERROR)], "{}: {}", self.settings_.label, clean_c_text(message, 4096));
}

turbo_status ComponentHost::get_string(void* ctx, const char* key, const char** value) {
  if (!ctx || !key || !value) return TURBO_INVALID_ARGUMENT;
  const OptionValues& options = self_of(ctx)->settings_.options;
  const auto found = options.find(key);
  if (found == options.end()) return TURBO_NOT_FOUND;
  const auto* text = std::get_if<std::string>(&found->second);
  if (!text) return TURBO_INVALID_ARGUMENT;
  *value = text->c_str();
  return TURBO_OK;
}

template <typename Held, typename Given>
turbo_status ComponentHost::get_option(void* ctx, const char* key, Given* value) {
  if (!ctx || !key || !value) return TURBO_INVALID_ARGUMENT;
  const OptionValues& options = self_of(ctx)->settings_.options;
  const auto found = options.find(key);
  if (found == options.end()) return TURBO_NOT_FOUND;
  const auto* held = std::get_if<Held>(&found->second);
  if (!held) return TURBO_INVALID_ARGUMENT;
  *value = static_cast<Given>(*held);
  return TURBO_OK;
}

uint64_t ComponentHost::now_ns(void* ctx) {
  if (ctx && self_of(ctx)->settings_.services.now_ns) return self_of(ctx)->settings_.services.now_ns();
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

turbo_status ComponentHost::spawn(void* ctx, const char* name, void (*fn)(void*), void* argument, turbo_error* error) {
  if (!ctx || !fn)
    return fill_abi_error(error, Status(Code::invalid_argument, "spawn: host and function must not be null"));
  ComponentHost& self = *self_of(ctx);
  const std::string shown = name ? clean_c_text(name, 64) : "worker";
  const std::lock_guard lock(self.mutex_);
  if (self.stopping_) return fill_abi_error(error, Status(Code::cancelled, "spawn: the component is being stopped"));
  if (self.workers_.size() >= max_workers)
    return fill_abi_error(error, turbo::error(Code::resource_exhausted, "spawn: at most {} workers", max_workers));
  try {
    self.workers_.reserve(self.workers_.size() + 1);
    self.workers_.emplace_back([&self, shown, fn, argument] { self.run_worker(shown, fn, argument); });
    ++self.running_workers_;
  } catch (const std::exception& exception) {
    return fill_abi_error(error,
                          turbo::error(Code::resource_exhausted, "spawn: cannot start a thread: {}", exception.what()));
  }
  return TURBO_OK;
}

void ComponentHost::run_worker(const std::string& name, void (*fn)(void*), void* argument) {
  ::pthread_setname_np(::pthread_self(), name.substr(0, 15).c_str());
  try {
    fn(argument);
  } catch (...) {
    log().error("{}: worker '{}' ended with an exception", settings_.label, name);
  }
  const std::lock_guard lock(mutex_);
  --running_workers_;
  worker_ended_.notify_all();
}

uint32_t ComponentHost::stopping(void* ctx) {
  if (!ctx) return 1;
  const std::lock_guard lock(self_of(ctx)->mutex_);
  return self_of(ctx)->stopping_ ? 1 : 0;
}

void ComponentHost::begin_stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
}

bool ComponentHost::join_workers() {
  std::unique_lock lock(mutex_);
  if (!worker_ended_.wait_for(lock, settings_.services.worker_join_limit, [&] { return running_workers_ == 0; })) {
    log().error("{}: {} of its workers did not end within {} ms of stop", settings_.label, running_workers_,
                settings_.services.worker_join_limit.count());
    return false;
  }
  std::vector<std::thread> ended = std::move(workers_);
  workers_.clear();
  lock.unlock();
  for (std::thread& worker : ended) worker.join();
  return true;
}

void ComponentHost::metric(const char* name, double value,
                           void (MetricsSink::*call)(const std::string&, const std::string&, double)) {
  if (!settings_.services.metrics || !name) return;
  const std::string shown = clean_c_text(name, 64);
  if (!is_metric_name(shown)) return log().warn("{}: metric name '{}' is not of [a-z_]", settings_.label, shown);
  (settings_.services.metrics->*call)(settings_.label, shown, value);
}

void ComponentHost::counter_add(void* ctx, const char* name, double value) {
  if (ctx) self_of(ctx)->metric(name, value, &MetricsSink::counter_add);
}

void ComponentHost::gauge_set(void* ctx, const char* name, double value) {
  if (ctx) self_of(ctx)->metric(name, value, &MetricsSink::gauge_set);
}

turbo_status ComponentHost::inner_drafter(void* ctx, uint32_t index, turbo_inner_drafter* inner) {
  if (!ctx || !inner || inner->struct_size < sizeof(uint32_t)) return TURBO_INVALID_ARGUMENT;
  const InnerDrafters& all = *self_of(ctx)->settings_.inner_drafters;
  if (index >= all.size()) return TURBO_NOT_FOUND;
  const uint32_t size = inner->struct_size;
  std::memcpy(inner, &all[index], std::min<size_t>(size, sizeof(turbo_inner_drafter)));
  inner->struct_size = size;
  return TURBO_OK;
}

uint32_t ComponentHost::on_engine_thread(void* ctx) {
  return ctx && self_of(ctx)->settings_.services.on_engine_thread() ? 1 : 0;
}

}  // namespace turbo::loader
