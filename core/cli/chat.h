// The interactive chat of `turbo run` on a terminal.
#pragma once

#include "cli/arguments.h"
#include "cli/generation.h"
#include "engine/runtime.h"

namespace turbo::cli {

/// Reads lines until end of input, /exit, or `interruption.leaving`. An answer asked to end is kept as far as it came.
int run_chat(const Arguments& arguments, engine::Runtime& runtime, Interruption& interruption);

}  // namespace turbo::cli
