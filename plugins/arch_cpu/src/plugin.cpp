// The component "cpu".
#include "pack.h"

TURBO_PLUGIN("dev.turbo.arch_cpu", "CPU compute", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::arch_cpu::Pack>(
                 TURBO_KIND_ARCH_PACK, "cpu", TURBO_TIER_CPU,
                 R"({"threads": {"type": "int", "default": 0, "min": 0, "max": 1024,
                     "doc": "Compute threads, the engine's own included; 0: what the host grants, else every CPU this process may use."}})"))
