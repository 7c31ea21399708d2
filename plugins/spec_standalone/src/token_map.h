// The file of drafter.token_map: ids that may be drafted, as a reduced output vocabulary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace turbo::spec_standalone {

/// Ids in rising order, each once. The file holds whole numbers between white space or commas, or one JSON list of them;
/// lines that begin with # are comments. Throws Failure: not readable, too large, something that is no id below `vocab`, a
/// list that is cut off or has more behind it (these with line, column and what is there), or no id at all.
std::vector<int32_t> read_token_map(const std::string& path, uint32_t vocab);

}  // namespace turbo::spec_standalone
