// The YAML subset that profiles may use, as a bounded tree with positions.
//
// Allowed: one document of maps, lists, plain and quoted scalars, comments. Refused, each with line and column:
// anchors, aliases, merge keys, tags, directives, block text (| and >), a second document, duplicate or non-text keys,
// tabs, control characters, text that is not UTF-8, nesting beyond max_yaml_depth and more than max_yaml_nodes nodes.
// Scalars keep the text as it was written, so that the typed reader (scalar.h) decides what `no`, `08` or `1e3` mean.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace turbo::profile {

inline constexpr int max_yaml_depth = 32;
inline constexpr size_t max_yaml_nodes = 10000;

struct Position {
  int line = 0;    // from 1
  int column = 0;  // from 1, in characters
};

struct YamlNode {
  enum class Kind { null, scalar, list, map };
  struct Entry;

  Kind kind = Kind::null;
  Position at;
  std::string text;     // scalar
  bool quoted = false;  // scalar in '..' or ".."
  std::vector<YamlNode> items;
  std::vector<Entry> entries;  // map, in file order
};

struct YamlNode::Entry {
  std::string key;
  Position at;
  YamlNode value;
};

/// Cheap linear scan of the raw text, before any recursive parser sees it: encoding, tabs, nesting, and the YAML
/// features that are refused. Errors read "<source>:<line>:<column>: expected .. but found ..".
Status prescan_yaml(std::string_view text, const std::string& source);

/// Prescan and parse. The root is always a map.
Result<YamlNode> parse_yaml(std::string_view text, const std::string& source);

}  // namespace turbo::profile
