// The HIP runtime under other library names than its own; for tests.
#pragma once

#include <memory>
#include <span>

#include "runtime.h"

namespace turbo::hip {

std::unique_ptr<Runtime> make_amd_runtime(std::span<const char* const> libraries);

}  // namespace turbo::hip
