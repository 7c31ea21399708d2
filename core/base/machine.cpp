#include "base/machine.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>
#include <string>

namespace turbo {
namespace {

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<uint64_t> number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end == text.data()) return std::nullopt;
  return value;
}

// Value in bytes of a "Name:   123 kB" row.
std::optional<uint64_t> kilobyte_row(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, name.size(), name) != 0) continue;
    const size_t digit = line.find_first_of("0123456789");
    if (digit == std::string::npos) return std::nullopt;
    if (const auto value = number(std::string_view(line).substr(digit))) return *value * 1024;
  }
  return std::nullopt;
}

}  // namespace

uint32_t usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t n = sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
  // cgroup v2: "QUOTA PERIOD" in microseconds, or "max PERIOD".
  const std::string quota = first_line("/sys/fs/cgroup/cpu.max");
  if (const size_t space = quota.find(' '); space != std::string::npos) {
    const auto limit = number(std::string_view(quota).substr(0, space));
    const auto period = number(std::string_view(quota).substr(space + 1));
    if (limit && period && *period > 0) n = std::min<uint32_t>(n, static_cast<uint32_t>((*limit + *period - 1) / *period));
  }
  return std::max(1u, n);
}

uint64_t available_memory_bytes() {
  uint64_t available = kilobyte_row("/proc/meminfo", "MemAvailable:").value_or(0);
  const auto limit = number(first_line("/sys/fs/cgroup/memory.max"));
  const auto used = number(first_line("/sys/fs/cgroup/memory.current"));
  if (limit && used && (available == 0 || *limit < available + *used)) available = *limit > *used ? *limit - *used : 0;
  return available;
}

uint64_t total_memory_bytes() {
  const uint64_t total = kilobyte_row("/proc/meminfo", "MemTotal:").value_or(0);
  const auto limit = number(first_line("/sys/fs/cgroup/memory.max"));
  return limit && (total == 0 || *limit < total) ? *limit : total;
}

uint64_t peak_rss_bytes() { return kilobyte_row("/proc/self/status", "VmHWM:").value_or(0); }

void reset_peak_rss() { std::ofstream("/proc/self/clear_refs") << 5; }  // see proc(5)

}  // namespace turbo
