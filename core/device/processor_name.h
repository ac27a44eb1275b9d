#pragma once
// Name of the processor in the kernel's /proc/cpuinfo, for reports.

#include <istream>
#include <string>

namespace quench {

// "model name"; on ARM, which has none, the core's name ("Neoverse V1"), or the numbers of its designer and its part if
// they are in no table here. "CPU" without either.
[[nodiscard]] std::string processor_name(std::istream& cpuinfo);

}  // namespace quench
