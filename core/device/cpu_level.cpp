#include "core/device/cpu_level.h"

#include <array>
#include <cstdlib>
#include <limits>

#include "core/device/kernel_slot.h"

#if defined(__aarch64__) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace quench {
namespace {

struct Level {
  int level;
  std::string_view name;
};

// Highest first.
#if defined(__x86_64__)
constexpr std::array kLevels{Level{5, "x86-64-v4 (AVX-512, bf16, VNNI)"}, Level{4, "x86-64-v4 (AVX-512)"},
                             Level{3, "x86-64-v3 (AVX2)"}};

bool processor_supports(int level) noexcept {
  __builtin_cpu_init();
  if (level >= 5)
    return processor_supports(4) && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  if (level >= 4)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (level >= 3)  // F16C predates AVX2; Clang 16 cannot query it
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  return true;
}
#elif defined(__aarch64__)
constexpr std::array kLevels{Level{3, "aarch64 (NEON, dotprod, bf16, i8mm)"}, Level{2, "aarch64 (NEON, dotprod)"},
                             Level{1, "aarch64 (NEON)"}};

bool processor_supports(int level) noexcept {
  if (level > 3) return false;
  if (level < 2) return true;
#if defined(__linux__)
  const unsigned long first = ::getauxval(AT_HWCAP), second = ::getauxval(AT_HWCAP2);
  const bool dot_products = (first & HWCAP_ASIMDDP) != 0;
  if (level == 2) return dot_products;
  return dot_products && (second & HWCAP2_BF16) != 0 && (second & HWCAP2_I8MM) != 0;
#else
  return false;
#endif
}
#else
constexpr std::array<Level, 0> kLevels{};

bool processor_supports(int level) noexcept {
  return level == 0;
}
#endif

int level_limit() noexcept {
  const char* text = std::getenv("QUENCH_CPU_LEVEL");
  return text != nullptr && *text != '\0' ? std::atoi(text) : std::numeric_limits<int>::max();
}

}  // namespace

bool cpu_supports_level(int level) noexcept {
  return level <= level_limit() && processor_supports(level);
}

std::string_view cpu_level_name() noexcept {
  for (const Level& level : kLevels)
    if (cpu_supports_level(level.level)) return level.name;
  return "baseline";
}

}  // namespace quench
