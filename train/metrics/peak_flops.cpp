#include "train/metrics/peak_flops.h"

#include <array>

namespace quench {
namespace {

struct Peak {
  std::string_view name;  // part of the driver name; first match
  double tera_flops;
  bool float8 = true;  // float8 tensor cores
};

constexpr std::array kPeaks{
    Peak{"B300", 2250.0},    Peak{"B200", 2250.0},       Peak{"GH200", 989.4},          Peak{"H200 NVL", 835.5},
    Peak{"H200", 989.4},     Peak{"H100 PCIe", 756.0},   Peak{"H100 NVL", 835.5},       Peak{"H100", 989.4},
    Peak{"H800", 989.4},     Peak{"A100", 312.0, false}, Peak{"A800", 312.0, false},    Peak{"L40S", 362.0},
    Peak{"L40", 181.0},      Peak{"A40", 149.7, false},  Peak{"A10", 125.0, false},     Peak{"RTX 6000 Ada", 364.2},
    Peak{"RTX 5090", 209.5}, Peak{"RTX 4090", 165.2},    Peak{"RTX 3090", 71.0, false},
};

const Peak* find(std::string_view device_name) noexcept {
  for (const Peak& peak : kPeaks)
    if (device_name.find(peak.name) != std::string_view::npos) return &peak;
  return nullptr;
}

}  // namespace

std::optional<double> bf16_peak_flops(std::string_view device_name) noexcept {
  const Peak* peak = find(device_name);
  return peak != nullptr ? std::optional(peak->tera_flops * 1e12) : std::nullopt;
}

std::optional<double> float8_peak_flops(std::string_view device_name) noexcept {
  const Peak* peak = find(device_name);
  return peak != nullptr && peak->float8 ? std::optional(2 * peak->tera_flops * 1e12) : std::nullopt;
}

}  // namespace quench
