#include "core/device/cpu_level.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <sstream>

#include "core/device/kernel_slot.h"
#include "core/device/processor_name.h"

namespace quench {
namespace {

class LevelLimit {
 public:
  explicit LevelLimit(int level) {
    if (const char* text = std::getenv("QUENCH_CPU_LEVEL")) before_ = text;
    ::setenv("QUENCH_CPU_LEVEL", std::to_string(level).c_str(), 1);
  }
  ~LevelLimit() {
    if (before_.empty())
      ::unsetenv("QUENCH_CPU_LEVEL");
    else
      ::setenv("QUENCH_CPU_LEVEL", before_.c_str(), 1);
  }

 private:
  std::string before_;
};

TEST(CpuLevel, TheLowestLevelOfTheBuildIsNamedUnderItsLimit) {
  const LevelLimit limit(kLeastCpuLevel);
  EXPECT_TRUE(cpu_supports_level(kLeastCpuLevel));
  EXPECT_FALSE(cpu_supports_level(kLeastCpuLevel + 1));
#if defined(__x86_64__)
  EXPECT_EQ(cpu_level_name(), "x86-64-v3 (AVX2)");
#elif defined(__aarch64__)
  EXPECT_EQ(cpu_level_name(), "aarch64 (NEON)");
#endif
}

TEST(CpuLevel, AHigherLevelHasTheInstructionsOfTheLowerOnes) {
  for (int level = 1; level <= 5; ++level) {
    EXPECT_LE(cpu_supports_level(level), cpu_supports_level(level - 1)) << level;
  }
}

#if defined(__aarch64__)
TEST(CpuLevel, LevelsOfX86AreUnsupportedOnArm) {
  EXPECT_FALSE(cpu_supports_level(4));
  EXPECT_FALSE(cpu_supports_level(5));
}
#endif

std::string name_in(const std::string& cpuinfo) {
  std::istringstream text(cpuinfo);
  return processor_name(text);
}

TEST(ProcessorName, OfX86IsTheModelName) {
  EXPECT_EQ(name_in("processor\t: 0\nmodel name\t: A chip: fast\nmodel name\t: another\n"), "A chip: fast");
}

TEST(ProcessorName, OfArmComesFromTheNumbersOfItsCore) {
  EXPECT_EQ(name_in("processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\nCPU part\t: 0xd03\n"), "Neoverse V1");
  EXPECT_EQ(name_in("CPU implementer\t: 0x61\nCPU part\t: 0x023\n"), "ARM processor (implementer 0x61, part 0x023)");
}

TEST(ProcessorName, OfAnUnknownFileIsCpu) {
  EXPECT_EQ(name_in(""), "CPU");
  EXPECT_EQ(name_in("model name\nCPU part\t: 0xd40\n"), "CPU");
}

}  // namespace
}  // namespace quench
