// The probe child and its parent's side. Private to the loader.
#pragma once

#include "loader/probe.h"

namespace turbo::loader {

struct ChildReport {
  Verdict verdict;
  bool mendable = false;  // the refusal came from the surroundings, not from misbehaviour
};

/// Run children over the library until each component has been probed or has shown itself bad.
Result<ChildReport> run_probe_children(const std::filesystem::path& library, uint32_t tier_hint,
                                       const ProbeSettings& settings);

/// True once run_if_probe_child was called in this process.
bool can_start_probe_child();

}  // namespace turbo::loader
