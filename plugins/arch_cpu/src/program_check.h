// Program check: every id, width, handle and the order of ops, before anything is lowered. [load]
#pragma once

#include "plan.h"

namespace turbo::arch_cpu {

/// Throws Failure naming the op. Afterwards lowering may trust the program.
void check_program(const turbo_program& program, const HandleCheck& handles);
bool op_supported(uint32_t kind);

}  // namespace turbo::arch_cpu
