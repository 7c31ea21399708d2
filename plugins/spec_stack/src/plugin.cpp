#include "stack.h"

TURBO_PLUGIN("dev.turbo.spec_stack", "Stacked drafters", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::stack::Stack<turbo::stack::Way::first>>(TURBO_KIND_DRAFTER, "first", TURBO_TIER_CPU),
             turbo::component<turbo::stack::Stack<turbo::stack::Way::merge>>(TURBO_KIND_DRAFTER, "merge", TURBO_TIER_CPU))
