// Which CPU instruction set a plugin's kernels use: found at run time, or asked for by TURBO_CPU_ISA.
//
// Include it only from files compiled without ISA flags. All ISAs give the same bits (turbo/kernel/lanes.h), so
// the choice is one of speed. Pure, [any] thread.
#pragma once

#include <cstdlib>
#include <string>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

namespace turbo {

enum class CpuIsa { scalar = 0, avx2 = 1, avx512 = 2 };

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA and F16C, state saved by the system
  bool avx512 = false;  // F, BW, VL, DQ and VNNI on top
  bool vpopcntdq = false, vbmi = false, bf16 = false;
};

inline CpuFeatures cpu_features() {
  CpuFeatures found;
#if defined(__x86_64__) || defined(__i386__)
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
  if (!osxsave || !avx) return found;
  unsigned state_low, state_high;
  __asm__ volatile("xgetbv" : "=a"(state_low), "=d"(state_high) : "c"(0));
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return found;
  found.avx2 = (b >> 5 & 1) && fma && f16c && (state_low & 0x6) == 0x6;
  const bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
  const bool vnni = c >> 11 & 1;
  found.avx512 = found.avx2 && f && dq && bw && vl && vnni && (state_low & 0xe6) == 0xe6;
  found.vbmi = found.avx512 && (c >> 1 & 1);
  found.vpopcntdq = found.avx512 && (c >> 14 & 1);
  if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) found.bf16 = found.avx512 && (a >> 5 & 1);
#endif
  return found;
}

struct CpuIsaChoice {
  CpuIsa isa = CpuIsa::scalar;
  CpuFeatures features;
  std::string problem;  // not empty: TURBO_CPU_ISA asks for something this machine or build lacks
};

inline const char* cpu_isa_name(CpuIsa isa) {
  return isa == CpuIsa::avx512 ? "avx512" : isa == CpuIsa::avx2 ? "avx2" : "scalar";
}

/// The widest set this machine and its operating system offer.
inline CpuIsa widest_cpu_isa() {
  const CpuFeatures features = cpu_features();
  return features.avx512 ? CpuIsa::avx512 : features.avx2 ? CpuIsa::avx2 : CpuIsa::scalar;
}

/// The ISA of this process: TURBO_CPU_ISA = scalar | avx2 | avx512 if set, else the widest the machine has.
inline CpuIsaChoice choose_cpu_isa() {
  CpuIsaChoice choice;
  choice.features = cpu_features();
  const CpuIsa best = widest_cpu_isa();
  choice.isa = best;
  const char* wanted = std::getenv("TURBO_CPU_ISA");
  if (!wanted || !*wanted) return choice;
  const std::string name = wanted;
  if (name == "scalar") choice.isa = CpuIsa::scalar;
  else if (name == "avx2") choice.isa = CpuIsa::avx2;
  else if (name == "avx512") choice.isa = CpuIsa::avx512;
  else choice.problem = "TURBO_CPU_ISA: '" + name + "' is none of scalar, avx2, avx512";
  if (choice.problem.empty() && choice.isa > best) {
    choice.problem = std::string("TURBO_CPU_ISA=") + name + ": this machine has only " + cpu_isa_name(best);
    choice.isa = best;
  }
  return choice;
}

}  // namespace turbo
