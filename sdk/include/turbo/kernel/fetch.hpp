// Asking for memory ahead of its use. [team] [any]
#pragma once

namespace turbo::kernel {

/// Asks for the cache line at p, into the second level; nothing is read, so p may be any address.
/// GCC takes a function whose only effect is __builtin_prefetch for one without effect and drops every call of it,
/// so on x86 the instruction is written out.
inline void fetch_line(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetcht1 %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 0, 2);
#endif
}

}  // namespace turbo::kernel
