// The file of drafter.token_map: ids that may be drafted, as a reduced output vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turbo::spec_standalone {

/// Ids in rising order, each once. The file holds whole numbers between white space, commas or brackets (so that a JSON
/// list is one too); lines that begin with # are comments. Throws Failure: not readable, too large, something that is no
/// number, an id that is not below `vocab`, or no id at all.
std::vector<int32_t> read_token_map(const std::string& path, uint32_t vocab);

}  // namespace turbo::spec_standalone
