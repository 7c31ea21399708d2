#include <turbo/fake/host.hpp>
#include <turbo/plugin.hpp>

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>

namespace turbo::fake {
namespace {

template <typename Wanted>
turbo_status get_option(Host& host, const char* key, Wanted& value) {
  const auto found = host.options.find(key ? key : "");
  if (found == host.options.end()) return TURBO_NOT_FOUND;
  const auto* held = std::get_if<Wanted>(&found->second);
  if (!held) return TURBO_INVALID_ARGUMENT;
  value = *held;
  return TURBO_OK;
}

}  // namespace

// The tables; every ctx is the Host.
struct Host::Services {
  turbo_host_log log{sizeof(turbo_host_log), 0, nullptr, &write};
  turbo_host_alloc alloc{sizeof(turbo_host_alloc), 0, nullptr, &allocate, &release, &account};
  turbo_host_config config{sizeof(turbo_host_config), 0, nullptr, &get_string, &get_i64, &get_f64, &get_bool};
  turbo_host_clock clock{sizeof(turbo_host_clock), 0, nullptr, &now_ns};
  turbo_host_threads threads{sizeof(turbo_host_threads), 1, nullptr, &spawn, &stopping};
  turbo_host_metrics metrics{sizeof(turbo_host_metrics), 0, nullptr, &counter_add, &gauge_set};
  turbo_host_file file{sizeof(turbo_host_file), 0, nullptr, &file_size, &file_read};
  turbo_host_thread_check thread_check{sizeof(turbo_host_thread_check), 0, nullptr, &on_engine_thread};
  turbo_host_model model{sizeof(turbo_host_model), 0, nullptr, &model_facts, &model_tensor, &model_encode, &model_token};
  turbo_host_registry registry{sizeof(turbo_host_registry), 0, nullptr, &find_format, &find_codec, nullptr};
  turbo_host_program program{sizeof(turbo_host_program), 0, nullptr, nullptr, nullptr, &target_weight, &kv_create, &block_table,
                             &model_open, &model_close, &model_run, &model_keep, &model_drop};
  turbo_host_drafters drafters{sizeof(turbo_host_drafters), 0, nullptr, &inner_drafter};
  std::thread::id engine = std::this_thread::get_id();

  explicit Services(Host* h) {
    log.ctx = alloc.ctx = config.ctx = clock.ctx = threads.ctx = metrics.ctx = file.ctx = thread_check.ctx = model.ctx = registry.ctx =
        program.ctx = drafters.ctx = h;
  }
  static Host& at(void* ctx) { return *static_cast<Host*>(ctx); }

  static turbo_status model_open(void* ctx, const turbo_draft_source* source, turbo_draft_model** model, turbo_draft_facts* facts, turbo_error* error) {
    if (!at(ctx).draft_model) return fill_error(error, TURBO_UNSUPPORTED, "the fake host has no draft model");
    return at(ctx).draft_model->open(*source, model, facts, error);
  }
  static void model_close(void* ctx, turbo_draft_model*) { --at(ctx).draft_model->live; }
  static turbo_status model_run(void* ctx, turbo_draft_model*, turbo_draft_group* groups, uint32_t n, turbo_view* logits, turbo_error* error) {
    return at(ctx).draft_model->run(groups, n, logits, error);
  }
  static turbo_status model_keep(void* ctx, turbo_draft_model*, uint32_t sequence, const uint32_t* nodes, uint32_t n, turbo_error* error) {
    return at(ctx).draft_model->keep(sequence, nodes, n, error);
  }
  static void model_drop(void* ctx, turbo_draft_model*, uint32_t sequence) { at(ctx).draft_model->drop(sequence); }

  static turbo_status inner_drafter(void* ctx, uint32_t index, turbo_inner_drafter* inner) {
    if (index >= at(ctx).inner_drafters.size()) return TURBO_NOT_FOUND;
    const uint32_t size = inner->struct_size;
    std::memcpy(inner, &at(ctx).inner_drafters[index], std::min<size_t>(size, sizeof *inner));
    inner->struct_size = size;
    return TURBO_OK;
  }

  static void write(void* ctx, uint32_t level, const char* message) {
    std::lock_guard lock(at(ctx).mutex_);
    at(ctx).log_.push_back({level, message ? message : ""});
  }

  static void* allocate(void* ctx, uint32_t memory, uint64_t bytes, uint64_t alignment, const char* tag, turbo_error* error) {
    Host& host = at(ctx);
    std::lock_guard lock(host.mutex_);
    const bool scripted = host.fail_allocation > 0 && --host.fail_allocation == 0;
    const bool legal = memory != TURBO_MEMORY_DEVICE && alignment && (alignment & (alignment - 1)) == 0 && alignment <= (2u << 20) && tag;
    if (!legal) return fill_error(error, TURBO_INVALID_ARGUMENT, "allocation: bad memory kind, alignment or tag"), nullptr;
    const uint64_t unit = alignment < sizeof(void*) ? sizeof(void*) : alignment;
    if (scripted || bytes > (uint64_t{1} << 40)) return fill_error(error, TURBO_RESOURCE_EXHAUSTED, "allocation: refused"), nullptr;
    void* pointer = std::aligned_alloc(unit, (bytes + unit) / unit * unit);
    if (!pointer) return fill_error(error, TURBO_RESOURCE_EXHAUSTED, "allocation: out of memory"), nullptr;
    host.live_[pointer] = {tag, bytes};
    ++host.n_allocations_;
    return pointer;
  }
  static void release(void* ctx, void* pointer) {
    if (!pointer) return;
    std::lock_guard lock(at(ctx).mutex_);
    if (at(ctx).live_.erase(pointer)) std::free(pointer);
    else ++at(ctx).bad_releases_;
  }
  static void account(void* ctx, uint32_t /*memory*/, const char* tag, int64_t bytes) {
    std::lock_guard lock(at(ctx).mutex_);
    int64_t& held = at(ctx).accounted_[tag ? tag : ""];
    held += bytes;
    if (held < 0) ++at(ctx).bad_releases_;
  }

  static turbo_status get_string(void* ctx, const char* key, const char** value) {
    const auto found = at(ctx).options.find(key ? key : "");
    if (found == at(ctx).options.end()) return TURBO_NOT_FOUND;
    const auto* held = std::get_if<std::string>(&found->second);
    if (!held) return TURBO_INVALID_ARGUMENT;
    *value = held->c_str();
    return TURBO_OK;
  }
  static turbo_status get_i64(void* ctx, const char* key, int64_t* value) { return get_option(at(ctx), key, *value); }
  static turbo_status get_f64(void* ctx, const char* key, double* value) { return get_option(at(ctx), key, *value); }
  static turbo_status get_bool(void* ctx, const char* key, uint32_t* value) {
    bool held = false;
    const turbo_status status = get_option(at(ctx), key, held);
    if (status == TURBO_OK) *value = held;
    return status;
  }

  static uint64_t now_ns(void* ctx) {
    std::lock_guard lock(at(ctx).mutex_);
    return at(ctx).clock_ns;
  }

  static turbo_status spawn(void* ctx, const char* name, void (*fn)(void*), void* argument, turbo_error* error) {
    return guarded(error, [&] {
      Host& host = at(ctx);
      host.worker_names_.emplace_back(name ? name : "");
      host.workers_.emplace_back(fn, argument);
    });
  }
  static uint32_t stopping(void* ctx) { return at(ctx).stopping_; }

  static void counter_add(void* ctx, const char* name, double value) {
    std::lock_guard lock(at(ctx).mutex_);
    at(ctx).counters_[name] += value;
  }
  static void gauge_set(void* ctx, const char* name, double value) {
    std::lock_guard lock(at(ctx).mutex_);
    at(ctx).gauges_[name] = value;
  }

  static turbo_status file_size(void* ctx, const char* path, uint64_t* bytes, turbo_error* error) {
    const auto found = at(ctx).files.find(path ? path : "");
    if (found == at(ctx).files.end()) return fill_error(error, TURBO_NOT_FOUND, "file: not found");
    *bytes = found->second.size();
    return TURBO_OK;
  }
  static turbo_status file_read(void* ctx, const char* path, uint64_t offset, void* dst, uint64_t bytes, turbo_error* error) {
    const auto found = at(ctx).files.find(path ? path : "");
    if (found == at(ctx).files.end()) return fill_error(error, TURBO_NOT_FOUND, "file: not found");
    const uint64_t size = found->second.size();
    if (offset > size || bytes > size - offset) return fill_error(error, TURBO_CORRUPT_INPUT, "file: read past the end");
    if (bytes) std::memcpy(dst, found->second.data() + offset, bytes);
    return TURBO_OK;
  }

  static uint32_t on_engine_thread(void* ctx) { return at(ctx).services_->engine == std::this_thread::get_id(); }

  static const turbo_model_facts* model_facts(void* ctx) { return &at(ctx).facts; }
  static turbo_status model_tensor(void* ctx, const char* name, turbo_view* view, turbo_error* error) {
    const auto found = at(ctx).tensors.find(name ? name : "");
    if (found == at(ctx).tensors.end()) return fill_error(error, TURBO_NOT_FOUND, "tensor: not found");
    Tensor& tensor = found->second;
    detail::fill_out(view, [&](turbo_view& out) {
      out.type = TURBO_TYPE_F32;
      out.data = tensor.values.data();
      out.bytes = tensor.values.size() * sizeof(float);
      out.rank = 2;
      out.device = -1;
      out.shape[0] = tensor.rows;
      out.shape[1] = tensor.cols;
      out.stride[0] = tensor.cols * sizeof(float);
      out.stride[1] = sizeof(float);
    });
    return TURBO_OK;
  }
  static turbo_status model_encode(void* ctx, const char* text, uint64_t text_bytes, int32_t* ids, uint64_t* n) {
    const auto& vocabulary = at(ctx).vocabulary;
    std::vector<int32_t> found;
    for (std::string_view rest(text, text_bytes); !rest.empty();) {
      size_t best = 0;
      int32_t id = -1;
      for (size_t i = 0; i < vocabulary.size(); ++i)
        if (vocabulary[i].size() > best && rest.substr(0, vocabulary[i].size()) == vocabulary[i]) {
          best = vocabulary[i].size();
          id = static_cast<int32_t>(i);
        }
      if (id < 0) return TURBO_NOT_FOUND;
      found.push_back(id);
      rest.remove_prefix(best);
    }
    const uint64_t capacity = *n;
    *n = found.size();
    if (capacity < found.size()) return TURBO_RESOURCE_EXHAUSTED;
    std::copy(found.begin(), found.end(), ids);
    return TURBO_OK;
  }
  static turbo_status model_token(void* ctx, int32_t id, const char** bytes, uint64_t* n) {
    const auto& vocabulary = at(ctx).vocabulary;
    if (id < 0 || static_cast<size_t>(id) >= vocabulary.size()) return TURBO_NOT_FOUND;
    *bytes = vocabulary[static_cast<size_t>(id)].data();
    *n = vocabulary[static_cast<size_t>(id)].size();
    return TURBO_OK;
  }

  static turbo_status find_format(void* ctx, uint32_t type, const turbo_weight_format** format, void** instance, turbo_error* error) {
    const auto found = at(ctx).formats.find(type);
    if (found == at(ctx).formats.end())
      return fill_error(error, TURBO_UNSUPPORTED, ("weight type " + std::to_string(type) + ": no format serves it").c_str());
    *format = found->second.table;
    *instance = found->second.instance;
    return TURBO_OK;
  }
  static turbo_status find_codec(void* ctx, uint32_t side, uint32_t /*layer*/, const turbo_kv_codec** codec, void** instance, turbo_error* error) {
    if (side > 1 || !at(ctx).codecs[side].table) return fill_error(error, TURBO_UNSUPPORTED, "KV codec: none registered");
    *codec = at(ctx).codecs[side].table;
    *instance = at(ctx).codecs[side].instance;
    return TURBO_OK;
  }

  static turbo_status target_weight(void* ctx, const char* name, const turbo_weight** weight, turbo_error* error) {
    const auto found = at(ctx).target_weights.find(name ? name : "");
    if (found == at(ctx).target_weights.end()) return fill_error(error, TURBO_NOT_FOUND, "target weight: not found");
    *weight = found->second;
    return TURBO_OK;
  }
  static turbo_status kv_create(void* ctx, uint32_t n_layers, uint32_t n_kv_heads, uint32_t head_dim_k, uint32_t head_dim_v,
                                turbo_kv_pool** pool, turbo_error* error) {
    Host& host = at(ctx);
    const turbo_kv_pool_desc desc = {sizeof(turbo_kv_pool_desc), n_layers, n_kv_heads, head_dim_k, head_dim_v, 16, 4};
    host.drafter_pools.push_back(desc);
    return host.pack->kv_create(host.pack_instance, &desc, pool, error);
  }
  static turbo_status block_table(void* ctx, uint32_t sequence, const int32_t** blocks, const int32_t** open_blocks, uint32_t* n) {
    const auto found = at(ctx).block_tables.find(sequence);
    if (found == at(ctx).block_tables.end()) return TURBO_NOT_FOUND;
    *blocks = found->second.blocks.data();
    *open_blocks = found->second.open_blocks.data();
    *n = static_cast<uint32_t>(found->second.blocks.size());
    return TURBO_OK;
  }
};

Host::Host() : services_(std::make_unique<Services>(this)) {
  host_ = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, this, &query};
  facts.struct_size = sizeof facts;
  facts.architecture = "fake";
}

Host::~Host() {
  stop_workers();
  for (auto& [pointer, allocation] : live_) std::free(pointer);
}

const void* Host::query(const turbo_host* host, const char* id) {
  if (!host || !id) return nullptr;
  Host& self = *static_cast<Host*>(host->ctx);
  Services& s = *self.services_;
  // Workers look up log, metrics and clock at the same time: only the tables that tests set up change here, when asked for.
  if (self.absent.count(id)) return nullptr;
  const std::string_view wanted(id);
  if (wanted == TURBO_HOST_LOG) return &s.log;
  if (wanted == TURBO_HOST_ALLOC) return &s.alloc;
  if (wanted == TURBO_HOST_CONFIG) return &s.config;
  if (wanted == TURBO_HOST_CLOCK) return &s.clock;
  if (wanted == TURBO_HOST_THREADS) {
    s.threads.compute_threads = self.compute_threads;
    return &s.threads;
  }
  if (wanted == TURBO_HOST_METRICS) return &s.metrics;
  if (wanted == TURBO_HOST_FILE) return &s.file;
  if (wanted == TURBO_HOST_THREAD_CHECK) return &s.thread_check;
  if (wanted == TURBO_HOST_MODEL) return &s.model;
  if (wanted == TURBO_HOST_REGISTRY_DRAFT) return &s.registry;
  if (wanted == TURBO_HOST_PROGRAM_DRAFT && (self.pack || self.draft_model)) {
    s.program.pack = self.pack;
    s.program.pack_instance = self.pack_instance;
    return &s.program;
  }
  if (wanted == TURBO_HOST_DRAFTERS_DRAFT && !self.inner_drafters.empty()) {
    s.drafters.count = static_cast<uint32_t>(self.inner_drafters.size());
    return &s.drafters;
  }
  return nullptr;
}

std::vector<LogLine> Host::log() const {
  std::lock_guard lock(mutex_);
  return log_;
}
bool Host::logged(const std::string& part) const {
  for (const LogLine& line : log())
    if (line.message.find(part) != std::string::npos) return true;
  return false;
}
double Host::counter(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = counters_.find(name);
  return found == counters_.end() ? 0 : found->second;
}
double Host::gauge(const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto found = gauges_.find(name);
  return found == gauges_.end() ? 0 : found->second;
}
uint64_t Host::live_bytes(const std::string& tag) const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [pointer, allocation] : live_)
    if (tag.empty() || allocation.tag == tag) bytes += allocation.bytes;
  return bytes;
}
int64_t Host::accounted_bytes(const std::string& tag) const {
  std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [name, held] : accounted_)
    if (tag.empty() || name == tag) bytes += held;
  return bytes;
}
uint64_t Host::leaks() const {
  std::lock_guard lock(mutex_);
  return live_.size();
}
uint64_t Host::bad_releases() const {
  std::lock_guard lock(mutex_);
  return bad_releases_;
}
uint64_t Host::allocations() const {
  std::lock_guard lock(mutex_);
  return n_allocations_;
}
std::vector<std::string> Host::worker_names() const { return worker_names_; }

void Host::advance(uint64_t ns) {
  std::lock_guard lock(mutex_);
  clock_ns += ns;
}
void Host::stop_workers() {
  stopping_ = true;
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

Library::Library(const std::string& path) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) throw std::runtime_error(dlerror());
  query_ = reinterpret_cast<turbo_plugin_query_fn>(dlsym(handle, TURBO_PLUGIN_QUERY_SYMBOL));
  if (!query_) throw std::runtime_error(path + ": exports no " TURBO_PLUGIN_QUERY_SYMBOL);
}

const turbo_component* find_component(const turbo_plugin& plugin, const std::string& kind, const std::string& name, uint32_t tier) {
  for (uint32_t i = 0; i < plugin.n_components; ++i) {
    const auto* component = reinterpret_cast<const turbo_component*>(reinterpret_cast<const char*>(plugin.components) +
                                                                     uint64_t{i} * plugin.component_bytes);
    if (kind == component->kind && name == component->name && tier == component->tier) return component;
  }
  return nullptr;
}

Component::Component(turbo_plugin_query_fn query, const std::string& kind, const std::string& name, uint32_t tier, Host& host)
    : host_(host) {
  const turbo_plugin* plugin = query(TURBO_ABI_MAJOR, TURBO_ABI_MINOR);
  if (!plugin) throw std::runtime_error("plugin: refuses this ABI version");
  component_ = find_component(*plugin, kind, name, tier);
  if (!component_) throw std::runtime_error("plugin " + std::string(plugin->id) + ": no " + kind + " " + name);
  turbo_error error{};
  error.struct_size = sizeof error;
  if (component_->create(host.raw(), &self_, &error) != TURBO_OK) throw std::runtime_error(error.message);
  if (component_->start && component_->start(self_, &error) != TURBO_OK) {
    component_->destroy(self_);
    throw std::runtime_error(error.message);
  }
}

Component::~Component() {
  if (component_->stop) component_->stop(self_);
  host_.stop_workers();
  component_->destroy(self_);
}

}  // namespace turbo::fake
