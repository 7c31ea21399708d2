// Figures as people read them.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace turbo {

/// "12.3 MiB", in the unit that keeps the number short.
inline std::string human_bytes(uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace turbo
