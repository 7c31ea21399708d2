#include "saguaro.h"

namespace {

constexpr const char* kOptions = R"({
  "entries": {"type": "int", "default": 1024, "min": 1, "max": 1000000, "doc": "most drafts that are kept ready"},
  "bytes": {"type": "int", "default": 4194304, "min": 1024, "max": 1073741824, "doc": "most memory that they take"},
  "guesses": {"type": "int", "default": 16, "min": 1, "max": 256, "doc": "outcomes of a verification that are drafted for"},
  "miss_exponent": {"type": "float", "default": 1.0, "min": 0.05, "max": 20.0,
                    "doc": "r, if F guesses of a token miss with a probability like F^-r; small values spread the guesses, great ones level them"}
})";

}  // namespace

TURBO_PLUGIN("dev.turbo.spec_saguaro", "Outcome cache", "0.1.0", "turbo", "Apache-2.0",
             turbo::component<turbo::saguaro::Saguaro>(TURBO_KIND_DRAFTER, "saguaro", TURBO_TIER_CPU, kOptions,
                                                       TURBO_COMPONENT_EXPERIMENTAL))
