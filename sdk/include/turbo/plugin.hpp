// Header-only C++ over the plugin ABI: error barrier, host services, component and plugin tables.
//
// A component is a class with
//   explicit T(const turbo::Host&);                               throws turbo::Failure on bad options
//   static void probe(const turbo::Host&, const turbo_probe_facts&, turbo::Probe&);   optional
//   static const void* interface(std::string_view id);            table whose calls take T* as self
// and optionally start() and stop(). turbo::component<T>(...) builds its descriptor; TURBO_PLUGIN(...) emits the
// one exported function. Exceptions stop at the trampolines here and become a status.
#pragma once

#include <turbo/abi/plugin.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

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

/// Run `body`; whatever it throws becomes a status.
template <typename Body>
turbo_status guarded(turbo_error* error, Body&& body) noexcept {
  try {
    body();
    return TURBO_OK;
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

template <typename T>
turbo_status probe(const turbo_host* host, const turbo_probe_facts* facts, turbo_probe_result* result, turbo_error* error) {
  return guarded(error, [&] {
    Probe answer;
    if constexpr (requires { T::probe(Host(host), *facts, answer); }) T::probe(Host(host), *facts, answer);
    result->score = answer.score;
    std::snprintf(result->reason, sizeof result->reason, "%s", answer.reason.c_str());
  });
}
template <typename T>
turbo_status create(const turbo_host* host, void** instance, turbo_error* error) {
  return guarded(error, [&] { *instance = new T(Host(host)); });
}
template <typename T>
turbo_status start(void* instance, turbo_error* error) {
  return guarded(error, [&] {
    if constexpr (requires(T& t) { t.start(); }) static_cast<T*>(instance)->start();
  });
}
template <typename T>
void stop(void* instance) {
  guarded(nullptr, [&] {
    if constexpr (requires(T& t) { t.stop(); }) static_cast<T*>(instance)->stop();
  });
}
template <typename T>
void destroy(void* instance) {
  guarded(nullptr, [&] { delete static_cast<T*>(instance); });
}
template <typename T>
const void* query_interface(const char* id) {
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
