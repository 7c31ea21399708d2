// What tests ask of the fiber runtime beyond the Runtime class. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "runtime.h"

namespace turbo::hip {

/// Empty when the canaries of all blocks are whole and none was found broken on release since the last call; else what
/// was found first.
std::string check_fiber_memory();
/// Bytes of all blocks that are allocated.
uint64_t fiber_memory_in_use();
/// Note damage for check_fiber_memory, and print it.
void fiber_memory_damaged(const std::string& what);

}  // namespace turbo::hip
