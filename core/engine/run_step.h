// A step on the pack, waited for: run, what the engine enqueues or does meanwhile, sync. A pack may take a step back when it is
// waited for (TURBO_CANCELLED: arch_pack.h); then all of it is done once more.
#pragma once

#include <turbo/abi/draft/arch_pack.h>

#include <string>

#include "base/abi_error.h"

namespace turbo {

/// read() is what uses the step's results: it is called again with the step. [engine]
template <typename Read>
Status run_step(const turbo_arch_pack& api, void* self, turbo_plan* plan, turbo_step_table* table, const std::string& who, Read read) {
  for (int tries_left = 1;; --tries_left) {
    AbiError failure;
    TURBO_RETURN_IF_ERROR(failure.check(api.run(self, plan, table, failure.out()), who));
    const Status done = read();
    if (!api.sync) return done;
    // The device still reads the table and the taps, whatever failed on the way.
    const Status waited = failure.check(api.sync(self, failure.out()), who + ": waiting for the device");
    const Status& worse = waited.is_ok() ? done : waited;
    if (worse.code() != Code::cancelled || tries_left == 0) return worse;
  }
}

}  // namespace turbo
