// JSON and text reports of a finished generation.
#pragma once

#include "cli/generation.h"
#include "engine/runtime.h"

namespace turbo::cli {

/// The object of `turbo run --json`.
nlohmann::ordered_json run_report(const engine::Runtime& runtime, const std::vector<int32_t>& prompt, const Generated& generated);
/// Decode steps by their rows: [{rows, steps, ms}], also without a drafter.
nlohmann::ordered_json steps_json(const engine::Speculation& speculation);
/// null, or the speculation object.
nlohmann::ordered_json speculation_json(const engine::Speculation& speculation, const std::string& drafter);
/// One line on stderr.
void print_run_summary(const Generated& generated);

/// Tokens per second, 0 when no time passed.
double per_second(uint64_t tokens, uint64_t ns);

}  // namespace turbo::cli
