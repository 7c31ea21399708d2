// Text operations that both filters and string methods use. Counts and widths are in code points.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/template/value.h"

namespace turbo::text::jinja {

/// Last occurrence, in linear time.
size_t rfind_text(std::string_view haystack, std::string_view needle);
/// Replaces up to `count` occurrences (negative = all). An empty `old` matches between all code points.
std::string replace_text(Heap& heap, std::string_view text, std::string_view old, std::string_view by, int64_t count);
/// str.splitlines.
std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends);
/// str.split on white space or (not null) a non-empty separator; negative maximum = all.
std::vector<std::string_view> split_text(Heap& heap, std::string_view text, const std::string_view* separator, int64_t max_splits,
                                         bool from_right);
/// Pads to `width` like str.ljust, rjust ('>') or center ('^').
std::string justify(Heap& heap, std::string_view text, int64_t width, std::string_view fill, char align);

}  // namespace turbo::text::jinja
