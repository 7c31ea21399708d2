// Header-only C++ over the plugin ABI: error barrier, host services, component and plugin tables.
//
// A component is a class with
//   explicit T(const turbo::Host&);                               throws turbo::Failure on bad options
//   static void probe(const turbo::Host&, const turbo_probe_facts&, turbo::Probe&);   optional
//   static const void* interface(std::string_view id);            table whose calls take T* as self
// and optionally start() and stop(). turbo::component<T>(...) builds its descriptor; TURBO_PLUGIN(...) emits the
// one exported function. Exceptions stop at the trampolines here and become a status.
//
// drafter.hpp, kv_codec.hpp, sampler.hpp, weight_format.hpp and arch_pack.hpp add a base class per kind that supplies
// interface() and the function table: derive, override a few functions, done.
//
// TURBO_SDK_CHECK: 1 (default) = trampolines refuse null pointers and short structs with TURBO_INVALID_ARGUMENT;
// 0 = they trust the host.
#pragma once

#include <turbo/abi/plugin.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#ifndef TURBO_SDK_CHECK
#define TURBO_SDK_CHECK 1
#endif

// Whether the struct behind `pointer` is long enough to hold `member`.
#define TURBO_HAS(pointer, member)                                                                              \
  ((pointer)->struct_size >= offsetof(std::remove_cvref_t<decltype(*(pointer))>, member) + sizeof((pointer)->member))

namespace turbo {

/// Thrown inside a plugin; turned into (status, message, hint) at the ABI line.
class Failure : public std::exception {
 public:
  Failure(turbo_status code, std::string message, std::string hint = {})
      : code(code), message(std::move(message)), hint(std::move(hint)) {}
  const char* what() const noexcept override { return message.c_str(); }
  turbo_status code;
  std::string message, hint;
};

inline turbo_status fill_error(turbo_error* error, turbo_status code, const char* message, const char* hint = "") noexcept {
  if (error) {
    error->code = code;
    std::snprintf(error->message, sizeof error->message, "%s", message);
    std::snprintf(error->hint, sizeof error->hint, "%s", hint);
  }
  return code;
}

/// Run `body`; whatever it throws becomes a status. A body that returns a turbo_status decides it itself.
template <typename Body>
turbo_status guarded(turbo_error* error, Body&& body) noexcept {
  try {
    if constexpr (std::is_same_v<std::invoke_result_t<Body>, turbo_status>) {
      return body();
    } else {
      body();
      return TURBO_OK;
    }
  } catch (const Failure& failure) {
    return fill_error(error, failure.code, failure.message.c_str(), failure.hint.c_str());
  } catch (const std::bad_alloc&) {
    return fill_error(error, TURBO_RESOURCE_EXHAUSTED, "out of memory");
  } catch (const std::exception& exception) {
    return fill_error(error, TURBO_INTERNAL, exception.what());
  } catch (...) {
    return fill_error(error, TURBO_INTERNAL, "unknown exception");
  }
}

/// Typed view of the host a component was created with. Copyable; services absent from the host are no-ops or defaults.
class Host {
 public:
  explicit Host(const turbo_host* host) : host_(host) {
    log_ = service<turbo_host_log>(TURBO_HOST_LOG);
    config_ = service<turbo_host_config>(TURBO_HOST_CONFIG);
  }
  const turbo_host* raw() const { return host_; }

  template <typename Table>
  const Table* service(const char* id) const {
    return host_ && host_->query_service ? static_cast<const Table*>(host_->query_service(host_, id)) : nullptr;
  }
  void log(uint32_t level, const std::string& message) const {
    if (log_) log_->write(log_->ctx, level, message.c_str());
  }
  std::string option(const char* key, std::string fallback) const {
    const char* value = nullptr;
    if (config_ && config_->get_string(config_->ctx, key, &value) == TURBO_OK && value) return value;
    return fallback;
  }
  int64_t option(const char* key, int64_t fallback) const {
    int64_t value;
    return config_ && config_->get_i64(config_->ctx, key, &value) == TURBO_OK ? value : fallback;
  }
  double option(const char* key, double fallback) const {
    double value;
    return config_ && config_->get_f64(config_->ctx, key, &value) == TURBO_OK ? value : fallback;
  }
  bool option(const char* key, bool fallback) const {
    uint32_t value;
    return config_ && config_->get_bool(config_->ctx, key, &value) == TURBO_OK ? value != 0 : fallback;
  }
  std::string option(const char* key, const char* fallback) const { return option(key, std::string(fallback)); }
  int64_t option(const char* key, int fallback) const { return option(key, static_cast<int64_t>(fallback)); }

  /// Monotonic nanoseconds of the host clock; 0 when the host has none.
  uint64_t now_ns() const {
    const auto* clock = service<turbo_host_clock>(TURBO_HOST_CLOCK);
    return clock ? clock->now_ns(clock->ctx) : 0;
  }
  void counter_add(const char* name, double value = 1) const {
    if (const auto* metrics = service<turbo_host_metrics>(TURBO_HOST_METRICS)) metrics->counter_add(metrics->ctx, name, value);
  }
  void gauge_set(const char* name, double value) const {
    if (const auto* metrics = service<turbo_host_metrics>(TURBO_HOST_METRICS)) metrics->gauge_set(metrics->ctx, name, value);
  }
  /// Facts of the target model, or null when the host has none.
  const turbo_model_facts* model() const {
    const auto* model = service<turbo_host_model>(TURBO_HOST_MODEL);
    return model ? model->facts(model->ctx) : nullptr;
  }

 private:
  const turbo_host* host_;
  const turbo_host_log* log_ = nullptr;
  const turbo_host_config* config_ = nullptr;
};

/// What probe answers.
struct Probe {
  int32_t score = 100;
  std::string reason;
};

namespace detail {

/// Minimal checking level: a broken call is refused, never followed.
inline void check(bool ok, const char* what) {
#if TURBO_SDK_CHECK
  if (!ok) throw Failure(TURBO_INVALID_ARGUMENT, std::string("bad call: ") + what);
#else
  (void)ok;
  (void)what;
#endif
}

/// Element i of an array of sized structs: the stride is what its creator was compiled with.
template <typename S>
S& element(S* first, size_t i) {
  using Bytes = std::conditional_t<std::is_const_v<S>, const char, char>;
  return *reinterpret_cast<S*>(reinterpret_cast<Bytes*>(first) + i * first->struct_size);
}

/// Let `fill` write a zeroed struct, then copy what the caller's version of it has room for.
template <typename S, typename Fill>
void fill_out(S* out, Fill&& fill) {
  S local{};
  local.struct_size = sizeof(S);
  fill(local);
  local.struct_size = out->struct_size;
  std::memcpy(static_cast<void*>(out), &local, std::min<size_t>(out->struct_size, sizeof(S)));
}

template <typename T>
turbo_status probe(const turbo_host* host, const turbo_probe_facts* facts, turbo_probe_result* result, turbo_error* error) noexcept {
  return guarded(error, [&] {
    check(host && facts && result, "probe");
    Probe answer;
    if constexpr (requires { T::probe(Host(host), *facts, answer); }) T::probe(Host(host), *facts, answer);
    result->score = answer.score;
    std::snprintf(result->reason, sizeof result->reason, "%s", answer.reason.c_str());
  });
}
template <typename T>
turbo_status create(const turbo_host* host, void** instance, turbo_error* error) noexcept {
  return guarded(error, [&] {
    check(host && instance, "create");
    *instance = new T(Host(host));
  });
}
template <typename T>
turbo_status start(void* instance, turbo_error* error) noexcept {
  return guarded(error, [&] {
    if constexpr (requires(T& t) { t.start(); }) static_cast<T*>(instance)->start();
  });
}
template <typename T>
void stop(void* instance) noexcept {
  guarded(nullptr, [&] {
    if constexpr (requires(T& t) { t.stop(); }) static_cast<T*>(instance)->stop();
  });
}
template <typename T>
void destroy(void* instance) noexcept {
  guarded(nullptr, [&] { delete static_cast<T*>(instance); });
}
template <typename T>
const void* query_interface(const char* id) noexcept {
  return id ? T::interface(std::string_view(id)) : nullptr;
}

}  // namespace detail

/// Descriptor of component class T. `schema` may be null.
template <typename T>
constexpr turbo_component component(const char* kind, const char* name, uint32_t tier, const char* schema = nullptr,
                                    uint32_t flags = 0) {
  turbo_component c{};
  c.struct_size = sizeof(turbo_component);
  c.tier = tier;
  c.kind = kind;
  c.name = name;
  c.flags = flags;
  c.option_schema = schema;
  c.probe = &detail::probe<T>;
  c.create = &detail::create<T>;
  c.start = &detail::start<T>;
  c.stop = &detail::stop<T>;
  c.destroy = &detail::destroy<T>;
  c.query_interface = &detail::query_interface<T>;
  return c;
}

}  // namespace turbo

// TURBO_PLUGIN("org.example.mine", "My plugin", "1.0.0", "Example", "Apache-2.0", turbo::component<A>(...), ...)
#define TURBO_PLUGIN(plugin_id, plugin_name, plugin_version, plugin_vendor, plugin_license, ...)              \
  extern "C" TURBO_ABI_EXPORT const turbo_plugin* turbo_plugin_query(uint32_t abi_major, uint32_t abi_minor); \
  extern "C" const turbo_plugin* turbo_plugin_query(uint32_t abi_major, uint32_t) {                           \
    static const turbo_component components[] = {__VA_ARGS__};                                                \
    static const turbo_plugin plugin = {sizeof(turbo_plugin), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0,            \
                                        plugin_id, plugin_name, plugin_version, plugin_vendor, plugin_license, \
                                        __VERSION__, sizeof components / sizeof components[0],                \
                                        sizeof(turbo_component), components};                                 \
    return abi_major == TURBO_ABI_MAJOR ? &plugin : nullptr;                                                  \
  }
