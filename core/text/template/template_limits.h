// How much one template may use, and what a render may be told. Apart from chat_template.h so that the interpreter's
// files need no JSON header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

namespace turbo::text {

/// Crossing any of these is Code::resource_exhausted; every other template failure is Code::invalid_argument.
struct TemplateLimits {
  size_t max_source_bytes = size_t{1} << 20;
  size_t max_depth = 100;                        ///< nesting of expressions, blocks, macro calls and values, each
  uint64_t max_steps = 5'000'000;                ///< one per node evaluated, item visited, or 64 bytes of text handled
  size_t max_output_bytes = size_t{32} << 20;
  size_t max_value_bytes = size_t{128} << 20;    ///< all values alive in one render, inputs included
};

struct RenderOptions {
  /// What strftime_now() reads, in seconds since the epoch (shown in local time); empty = the system clock.
  std::optional<int64_t> now_unix_s;
};

}  // namespace turbo::text
