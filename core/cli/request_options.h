// Generation options of the command line as an engine request.
#pragma once

#include "cli/arguments.h"
#include "engine/runtime.h"

namespace turbo::cli {

/// Everything but the prompt: sampling (options over the profile over the model file), limits, end tokens.
Result<engine::Request> make_request(const Arguments& arguments, const engine::Runtime& runtime);

}  // namespace turbo::cli
