// A vendor's runtime opened by name, and the handles that both vendors' runtimes hand out alike. The libraries stay
// mapped: GPU runtimes keep threads of their own, which must not lose their code.
#pragma once

#include <dlfcn.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime.h"

namespace turbo::hip {

class NamedLibrary {
 public:
  /// The first of the names that opens. Throws "WHO: library missing: why", with what the loader said of each.
  NamedLibrary(const char* who, std::span<const char* const> names, const char* hint) : who_(who) {
    std::string why;
    for (const char* name : names) {
      // Bound at once: a symbol that is missing then fails here, not in the middle of a run.
      handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (handle_) {
        name_ = name;
        return;
      }
      const char* said = dlerror();
      why += (why.empty() ? "" : "; ") + std::string(said ? said : name);
    }
    throw Failure(TURBO_UNSUPPORTED, who_ + ": library missing: " + why, hint);
  }
  const std::string& name() const { return name_; }

  template <typename Function>
  void optional(Function*& function, const char* symbol) const {
    function = reinterpret_cast<Function*>(dlsym(handle_, symbol));
  }
  template <typename Function>
  void core(Function*& function, const char* symbol) {
    optional(function, symbol);
    if (!function) missing_ += (missing_.empty() ? "" : ", ") + std::string(symbol);
  }
  /// After the last core(): throws "WHO: version: ..." when one was not there.
  void check_core(const char* hint) const {
    if (!missing_.empty()) throw Failure(TURBO_UNSUPPORTED, who_ + ": version: " + name_ + " has no " + missing_, hint);
  }

 private:
  std::string who_, name_, missing_;
  void* handle_ = nullptr;
};

struct NamedStream : turbo_stream {
  void* handle = nullptr;
};
struct NamedKernel : turbo_kernel {
  void* handle = nullptr;
};
struct NamedModule : turbo_module {
  void* handle = nullptr;
  std::map<std::string, NamedKernel> kernels;
};
struct NamedEvent : Runtime::Event {
  void* handle = nullptr;
};
struct NamedGraph : Runtime::Graph {
  void* handle = nullptr;
  uint32_t nodes = 0;
};

inline void*& handle_of(turbo_stream* stream) { return static_cast<NamedStream*>(stream)->handle; }
inline void*& handle_of(turbo_kernel* kernel) { return static_cast<NamedKernel*>(kernel)->handle; }
inline void*& handle_of(turbo_module* module) { return static_cast<NamedModule*>(module)->handle; }
inline void*& handle_of(Runtime::Event* event) { return static_cast<NamedEvent*>(event)->handle; }

/// "hipErrorOutOfMemory (2, out of memory)"; older runtimes say the name as the text too.
inline std::string error_line(int code, const char* name, const char* text) {
  const std::string shown = name ? name : "error";
  return shown + " (" + std::to_string(code) + (text && shown != text ? std::string(", ") + text : "") + ")";
}

/// Code objects are ELF files; anything else would be read beyond its end.
inline bool is_elf(const turbo_code_object& object) {
  return object.data && object.bytes > 64 && std::memcmp(object.data, "\x7f" "ELF", 4) == 0;
}

}  // namespace turbo::hip
