// Opens a built plugin library and creates components through the C ABI, as a host does. Single-threaded.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <turbo/abi/plugin.h>

#include <cstdlib>
#include <string>
#include <vector>

namespace turbo::test {

class Library {
 public:
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (!handle_) { ADD_FAILURE() << dlerror(); return; }
    auto query = reinterpret_cast<turbo_plugin_query_fn>(dlsym(handle_, TURBO_PLUGIN_QUERY_SYMBOL));
    if (query) plugin_ = query(TURBO_ABI_MAJOR, TURBO_ABI_MINOR);
  }
  Library(const Library&) = delete;
  const turbo_plugin* plugin() const { return plugin_; }
  const turbo_component* component(const std::string& name) const {
    for (uint32_t i = 0; plugin_ && i < plugin_->n_components; ++i)
      if (plugin_->components[i].name == name) return &plugin_->components[i];
    return nullptr;
  }

 private:
  void* handle_;
  const turbo_plugin* plugin_ = nullptr;
};

/// A host that offers no service at all.
inline const turbo_host* bare_host() {
  static const turbo_host host = {sizeof(turbo_host), TURBO_ABI_MAJOR, TURBO_ABI_MINOR, 0, nullptr,
                                  [](const turbo_host*, const char*) -> const void* { return nullptr; }};
  return &host;
}

/// A created instance with its function table; destroyed with this object. `isa` empty: the machine's choice.
template <typename Table>
class Instance {
 public:
  Instance(const turbo_component* component, const char* interface_id, const turbo_host* host, const std::string& isa = {})
      : component_(component) {
    if (!component) { ADD_FAILURE() << "no such component"; return; }
    if (isa.empty()) unsetenv("TURBO_CPU_ISA");
    else setenv("TURBO_CPU_ISA", isa.c_str(), 1);
    turbo_error error{sizeof(turbo_error)};
    status_ = component->create(host, &self_, &error);
    if (status_ == TURBO_OK && component->start) status_ = component->start(self_, &error);
    message_ = error.message;
    unsetenv("TURBO_CPU_ISA");
    table_ = static_cast<const Table*>(component->query_interface(interface_id));
  }
  Instance(const Instance&) = delete;
  ~Instance() {
    if (!self_) return;
    if (component_->stop) component_->stop(self_);
    component_->destroy(self_);
  }
  bool ok() const { return status_ == TURBO_OK && self_ && table_; }
  turbo_status status() const { return status_; }
  const std::string& message() const { return message_; }
  const Table* operator->() const { return table_; }
  const Table* table() const { return table_; }
  void* self() const { return self_; }

 private:
  const turbo_component* component_;
  const Table* table_ = nullptr;
  void* self_ = nullptr;
  turbo_status status_ = TURBO_INTERNAL;
  std::string message_;
};

/// ISAs that this machine can run, narrowest first.
inline std::vector<std::string> usable_isas(const turbo_component* component) {
  std::vector<std::string> usable;
  for (const char* isa : {"scalar", "avx2", "avx512"}) {
    setenv("TURBO_CPU_ISA", isa, 1);
    turbo_probe_facts facts{sizeof(turbo_probe_facts), TURBO_TIER_CPU, nullptr, nullptr};
    turbo_probe_result result{sizeof(turbo_probe_result)};
    turbo_error error{sizeof(turbo_error)};
    if (component->probe(bare_host(), &facts, &result, &error) == TURBO_OK && result.score > 0) usable.push_back(isa);
  }
  unsetenv("TURBO_CPU_ISA");
  EXPECT_FALSE(usable.empty()) << "not even scalar is usable";
  return usable;
}

}  // namespace turbo::test
