// Aligned text tables for people. Not thread-safe.
#pragma once

#include <string>
#include <vector>

namespace turbo::loader {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> header) { rows_.push_back(std::move(header)); }
  /// As many cells as the header has.
  void add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  /// Header and rows, columns two spaces apart, no trailing spaces.
  std::string text(size_t indent = 0) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace turbo::loader
