#include "core/device/processor_name.h"

#include <array>
#include <string_view>

namespace quench {
namespace {

struct Core {
  std::string_view implementer, part, name;  // as in the main ID register
};

constexpr std::array kCores{
    Core{"0x41", "0xd03", "Cortex-A53"},  Core{"0x41", "0xd05", "Cortex-A55"},  Core{"0x41", "0xd07", "Cortex-A57"},
    Core{"0x41", "0xd08", "Cortex-A72"},  Core{"0x41", "0xd0b", "Cortex-A76"},  Core{"0x41", "0xd0c", "Neoverse N1"},
    Core{"0x41", "0xd40", "Neoverse V1"}, Core{"0x41", "0xd49", "Neoverse N2"}, Core{"0x41", "0xd4f", "Neoverse V2"},
};

}  // namespace

std::string processor_name(std::istream& cpuinfo) {
  std::string line, implementer, part;
  while (std::getline(cpuinfo, line)) {
    const std::size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const std::string value = line.substr(colon + 2);
    if (line.starts_with("model name")) return value;
    if (line.starts_with("CPU implementer") && implementer.empty()) implementer = value;
    if (line.starts_with("CPU part") && part.empty()) part = value;
  }
  if (implementer.empty() || part.empty()) return "CPU";
  for (const Core& core : kCores)
    if (core.implementer == implementer && core.part == part) return std::string(core.name);
  return "ARM processor (implementer " + implementer + ", part " + part + ")";
}

}  // namespace quench
