// CPUs that this process may use and the target leaves idle: where a drafter may have threads of its own. [load]
#pragma once

#include <turbo/plugin.hpp>

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <fstream>

namespace turbo::draft {

/// Affinity mask, then the control group's quota ("QUOTA PERIOD" in microseconds, or "max PERIOD"); at least 1.
inline uint32_t usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t n = ::sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  // A fraction of a CPU is not idle: rounded down.
  if (uint64_t quota, period; file >> quota >> period && period > 0) n = static_cast<uint32_t>(std::min<uint64_t>(n, quota / period));
  return std::max(1u, n);
}

/// The host tells how many threads it computes with; without that service none are taken as idle.
inline uint32_t idle_cpus(const Host& host) {
  const auto* threads = host.service<turbo_host_threads>(TURBO_HOST_THREADS);
  if (!threads) return 0;
  const uint32_t usable = usable_cpus(), computing = std::max(1u, threads->compute_threads);
  return usable > computing ? usable - computing : 0;
}

}  // namespace turbo::draft
