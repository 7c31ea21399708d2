// Turns what an ABI call answered into a Status.
#pragma once

#include <turbo/abi/base.h>

#include "base/status.h"

namespace turbo {

static_assert(static_cast<int>(Code::invalid_argument) == TURBO_INVALID_ARGUMENT);
static_assert(static_cast<int>(Code::resource_exhausted) == TURBO_RESOURCE_EXHAUSTED);
static_assert(static_cast<int>(Code::internal) == TURBO_INTERNAL);

class AbiError {
 public:
  AbiError() { raw_.struct_size = sizeof raw_; }
  turbo_error* out() { return &raw_; }

  /// Ok, or the plugin's message behind "what: ". A status out of range becomes internal.
  Status check(turbo_status status, const std::string& what) {
    if (status == TURBO_OK) return Status::ok();
    const bool known = status > TURBO_OK && status <= TURBO_INTERNAL;
    // A plugin that forgot the terminator must not make us read past the buffer.
    raw_.message[sizeof raw_.message - 1] = '\0';
    raw_.hint[sizeof raw_.hint - 1] = '\0';
    const std::string why = raw_.message[0] ? raw_.message : fmt::format("failed with status {}", status);
    return Status(known ? static_cast<Code>(status) : Code::internal, what + ": " + why, raw_.hint);
  }

 private:
  turbo_error raw_{};
};

}  // namespace turbo
