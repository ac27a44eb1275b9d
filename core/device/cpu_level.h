#pragma once
// Levels of instructions that the CPU kernels are compiled for, one numbering for each architecture:
//
//   x86-64        3 AVX2 and FMA    4 AVX-512           5 AVX-512 with bf16 and VNNI
//   64-bit ARM    1 NEON            2 with dot products (dotprod)   3 with dotprod, bf16 and i8mm
//
// Other architectures have level 0 alone, vectors of four lanes by the compiler. cpu_supports_level(): kernel_slot.h.

#include <string_view>

namespace quench {

#if defined(__x86_64__)
// Lowest level of the build.
inline constexpr int kLeastCpuLevel = 3;
inline constexpr std::string_view kLeastCpuInstructions = "AVX2 and FMA";
#elif defined(__aarch64__)
inline constexpr int kLeastCpuLevel = 1;
inline constexpr std::string_view kLeastCpuInstructions = "NEON";
#else
inline constexpr int kLeastCpuLevel = 0;
inline constexpr std::string_view kLeastCpuInstructions = "nothing";
#endif

// Highest level that processor and QUENCH_CPU_LEVEL allow, in words: "x86-64-v4 (AVX-512)".
[[nodiscard]] std::string_view cpu_level_name() noexcept;

}  // namespace quench
