// Names of instruction sets, and which code objects a device may be tried with. Pure functions, any thread.
#pragma once

#include <turbo/abi/draft/device.h>

#include <string>
#include <string_view>
#include <vector>

namespace turbo::hip {

/// "gfx1031:sramecc-:xnack-" -> "gfx1031"; what follows the colon is no part of the instruction set.
std::string plain_isa(std::string_view reported);

/// The family's common target: gfx1030 for RDNA2 (gfx1030 to gfx1036), else the name itself.
std::string normalised_isa(std::string_view isa);

/// Places of the objects that a device of `isa` may be tried with, best first: its own, then the family's common target,
/// then others of the family (for sm_XY: the same major version and a lower or equal minor one, highest first).
std::vector<uint32_t> candidate_objects(std::string_view isa, const turbo_code_object* objects, uint32_t n);

/// "gfx1030, gfx1031, gfx1100".
std::string isa_list(const turbo_code_object* objects, uint32_t n);

}  // namespace turbo::hip
