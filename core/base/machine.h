// Facts of this machine and process that several folders ask for.
#pragma once

#include <cstdint>

namespace turbo {

/// Processors this process may use: affinity mask, then the cgroup's CPU quota rounded up; at least 1.
uint32_t usable_cpus();
/// Memory this process may still take: MemAvailable, or the cgroup's limit when that is smaller. 0 = unknown.
uint64_t available_memory_bytes();
/// Memory this process may take at most: MemTotal, or the cgroup's limit when that is smaller. 0 = unknown.
uint64_t total_memory_bytes();
/// Largest resident size so far. 0 = unknown.
uint64_t peak_rss_bytes();
/// The largest size is counted anew from here on, where the system can do that.
void reset_peak_rss();

}  // namespace turbo
