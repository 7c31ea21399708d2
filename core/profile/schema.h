// What is generated from the key table: configs/profile.schema.json and docs/profiles.md. A test compares the files in
// the tree with these texts, and rewrites them when TURBO_UPDATE_GENERATED=1 is set.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace turbo::profile {

/// JSON Schema (draft 2020-12) of a profile, for editors. Structure, types and ranges; not the cross-key rules.
nlohmann::ordered_json json_schema();

/// The reference page in Markdown: every key with type, default and meaning, then the flags.
std::string reference_markdown();

}  // namespace turbo::profile
