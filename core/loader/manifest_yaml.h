// A bounded YAML tree for manifests, built from parser events so that no limit is passed before it is checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace turbo::loader {

struct YamlEntry;

struct YamlValue {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;  // from 1
  bool quoted = false;
  std::string text;
  std::vector<YamlValue> items;    // list
  std::vector<YamlEntry> entries;  // map, in file order, keys distinct
};

struct YamlEntry {
  std::string key;
  YamlValue value;
};

/// One document whose root is a map.
Result<YamlValue> parse_bounded_yaml(std::string_view text, const std::string& source);

}  // namespace turbo::loader
