#include "train/metrics/peak_flops.h"

#include <array>

namespace quench {
namespace {

struct Peak {
  std::string_view name;  // part of the driver's name; the first that matches counts
  double tera_flops;
};

constexpr std::array kPeaks{
    Peak{"B300", 2250.0},    Peak{"B200", 2250.0},     Peak{"GH200", 989.4},    Peak{"H200 NVL", 835.5},
    Peak{"H200", 989.4},     Peak{"H100 PCIe", 756.0}, Peak{"H100 NVL", 835.5}, Peak{"H100", 989.4},
    Peak{"H800", 989.4},     Peak{"A100", 312.0},      Peak{"A800", 312.0},     Peak{"L40S", 362.0},
    Peak{"L40", 181.0},      Peak{"A40", 149.7},       Peak{"A10", 125.0},      Peak{"RTX 6000 Ada", 364.2},
    Peak{"RTX 5090", 209.5}, Peak{"RTX 4090", 165.2},  Peak{"RTX 3090", 71.0},
};

}  // namespace

std::optional<double> bf16_peak_flops(std::string_view device_name) noexcept {
  for (const Peak& peak : kPeaks)
    if (device_name.find(peak.name) != std::string_view::npos) return peak.tera_flops * 1e12;
  return std::nullopt;
}

}  // namespace quench
