// Text that came from a manifest, a library or a plugin call, made fit for messages, logs and JSON; names of tiers.
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace turbo::loader {

/// Valid UTF-8 of at most `max_bytes`: control characters and malformed bytes become '?', a cut ends in "...".
std::string clean_text(std::string_view text, size_t max_bytes = 512);

/// clean_text of a C string of which at most `max_bytes` are read; null gives "".
std::string clean_c_text(const char* text, size_t max_bytes = 512);

/// "cpu", "generic", "hip", or "tier N".
std::string tier_name(uint32_t tier);
std::optional<uint32_t> tier_number(std::string_view name);

/// True for 1..max characters of [a-z0-9_].
bool is_component_name(std::string_view name, size_t max = 32);
/// True for reverse DNS: at least two parts of [a-z0-9_-], joined by single dots, at most 128 characters.
bool is_plugin_id(std::string_view id);

}  // namespace turbo::loader
