// The interactive chat of `turbo run` on a terminal.
#pragma once

#include <atomic>

#include "cli/arguments.h"
#include "cli/generation.h"
#include "engine/runtime.h"

namespace turbo::cli {

/// Reads lines until end of input or /exit. Ctrl-C ends the running answer; on an empty prompt it leaves.
int run_chat(const Arguments& arguments, engine::Runtime& runtime, CurrentGeneration& current, std::atomic<bool>& interrupted);

}  // namespace turbo::cli
