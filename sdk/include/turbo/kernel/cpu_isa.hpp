// Which instruction set the CPU tier runs: found at run time, lowered by TURBO_CPU_ISA=scalar|avx2|avx512.
// Header-only; include it only from files compiled without ISA flags. Call from load-time code: it reads the environment.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace turbo::cpu {

/// In rising order. avx2 stands for AVX2 + FMA + F16C; avx512 for F + BW + VL + DQ + VNNI on top of it.
enum class Isa : uint32_t { scalar, avx2, avx512 };

inline const char* isa_name(Isa isa) {
  return isa == Isa::avx512 ? "avx512" : isa == Isa::avx2 ? "avx2" : "scalar";
}

/// Best set that this machine and its operating system offer.
inline Isa detect_isa() {
#if defined(__x86_64__) && defined(__GNUC__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c")) return Isa::scalar;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vnni");
  return avx512 ? Isa::avx512 : Isa::avx2;
#else
  return Isa::scalar;
#endif
}

/// The set to run, or why none can be: `problem` is empty on success.
struct IsaChoice {
  Isa isa = Isa::scalar;
  std::string problem;
};

inline IsaChoice choose_isa() {
  IsaChoice choice{detect_isa(), {}};
  const char* wanted_text = std::getenv("TURBO_CPU_ISA");
  if (!wanted_text || !*wanted_text) return choice;
  const std::string_view wanted = wanted_text;
  for (Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512}) {
    if (wanted != isa_name(isa)) continue;
    if (isa > choice.isa)
      choice.problem = "TURBO_CPU_ISA=" + std::string(wanted) + ": this machine offers at most " + isa_name(choice.isa);
    choice.isa = isa > choice.isa ? choice.isa : isa;
    return choice;
  }
  choice.problem = "TURBO_CPU_ISA=" + std::string(wanted.substr(0, 32)) + ": not one of scalar, avx2, avx512";
  return choice;
}

}  // namespace turbo::cpu
