// What this machine's processors can do at best: the yardstick of turbo bench. Calling thread waits; starts threads of
// its own and joins them.
#pragma once

#include <cstdint>
#include <string>

namespace turbo::cli {

struct Roofline {
  uint32_t threads = 0;
  double read_gb_s = 0;             // 10^9 bytes a second, all threads reading memory front to back
  double read_gb_s_one_thread = 0;  // 0 when not asked for
  double dot_gmac_s = 0;            // 10^9 int8 multiply-adds a second by integer dots on all threads; 0 when not asked for
  std::string dot_instruction;      // "vpdpbusd 512", ...; empty where there is none
};

/// `thorough` adds the one-thread and dot figures and repeats more. Reads a buffer of 512 MiB, or a quarter of the free
/// memory when that is less. Takes about 0.3 s, thorough about 1.5 s.
Roofline measure_roofline(uint32_t threads, bool thorough);

}  // namespace turbo::cli
