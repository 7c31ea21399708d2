// Asking for memory ahead of its use. [team] [any]
#pragma once

namespace turbo::kernel {

/// Asks for the cache line at p, to be used once and soon; nothing is read, so p may be any address. Not through the second
/// level: a cache that streams through it drives out the kernels' own code, whose place in memory then decides 10 % of speed.
/// GCC takes a function whose only effect is __builtin_prefetch for one without effect and drops every call of it,
/// so on x86 the instruction is written out.
inline void fetch_line(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetchnta %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 0, 0);
#endif
}

}  // namespace turbo::kernel
