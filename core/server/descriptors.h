// How many connections this process can hold open.
#pragma once

#include <cstdint>

namespace turbo::server {

/// Raises the process's limit of open files, as far as it may be raised, so that `wanted` connections fit beside what
/// else is open; returns how many do, `wanted` at most, and warns when that is fewer.
uint32_t affordable_connections(uint32_t wanted);

}  // namespace turbo::server
