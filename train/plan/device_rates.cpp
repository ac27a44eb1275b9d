#include "train/plan/device_rates.h"

#include <algorithm>
#include <array>

#include "core/system/check.h"
#include "train/metrics/peak_flops.h"

namespace quench {
namespace {

// H200: step profiles of 8b-l8 and its two-GPU runs (docs/lab/2026-11-20-performance.md). H100: GEMMs from steps of
// 8b-l8 and 1b (docs/lab/2026-11-25.md), collectives of 256 MiB (docs/lab/2026-11-26.md), memory as the H200's in the
// ratio of their bandwidths, attention as the H200's.
constexpr std::array kRates{DeviceRates{.device = "H200",
                                        .bf16_flops = 702e12,
                                        .float8_flops = 1350e12,
                                        .attention_flops = 375e12,
                                        .narrow_attention = 275e12,
                                        .memory_bytes = 3.85e12,
                                        .gather_bytes = 218e9,
                                        .reduce_bytes = 208e9,
                                        .seconds_per_sent_byte = 0.75 / 213e9,
                                        .source = "steps of 1b, 8b-l8 and 8b on one and two H200"},
                            DeviceRates{.device = "H100",
                                        .bf16_flops = 712e12,
                                        .float8_flops = 1360e12,
                                        .attention_flops = 375e12,
                                        .narrow_attention = 275e12,
                                        .memory_bytes = 2.69e12,
                                        .gather_bytes = 212e9,
                                        .reduce_bytes = 200e9,
                                        .seconds_per_sent_byte = 0.75 / 206e9,
                                        .source = "steps of 1b and 8b-l8 on an H100, collectives of two"}};

// Slower boards of the same name, not measured.
constexpr std::array<std::string_view, 3> kOthers = {"H200 NVL", "H100 NVL", "H100 PCIe"};

// Published bandwidths, bytes/s: memory, and each direction of the link to the other GPUs of a machine.
struct PublishedRates {
  std::string_view gpu;
  std::int64_t gigabytes;
  double memory, link;
};
constexpr double kNvlink4 = 450e9, kPcie4 = 32e9, kPcie5 = 64e9;
constexpr std::array kPublished{
    PublishedRates{"RTX 3090", 24, 936e9, kPcie4},  PublishedRates{"RTX 4090", 24, 1008e9, kPcie4},
    PublishedRates{"RTX 5090", 32, 1792e9, kPcie5}, PublishedRates{"A100", 40, 1555e9, 300e9},
    PublishedRates{"A100", 80, 2039e9, 300e9},      PublishedRates{"L40S", 48, 864e9, kPcie4},
    PublishedRates{"B200", 180, 8000e9, 900e9},
};
constexpr double kH200Memory = 4800e9;

}  // namespace

std::span<const DeviceRates> measured_rates() noexcept {
  return kRates;
}

const DeviceRates* device_rates(std::string_view device_name) noexcept {
  for (const std::string_view other : kOthers)
    if (device_name.find(other) != std::string_view::npos) return nullptr;
  for (const DeviceRates& rates : kRates)
    if (device_name.find(rates.device) != std::string_view::npos) return &rates;
  return nullptr;
}

DeviceRates planned_rates(const PlannedGpu& gpu) {
  if (const DeviceRates* measured = device_rates(gpu.name)) return *measured;
  const DeviceRates& basis = kRates.front();
  const auto published = std::ranges::find_if(
      kPublished, [&](const PublishedRates& one) { return one.gpu == gpu.name && one.gigabytes == gpu.gigabytes; });
  const std::optional<double> peak = bf16_peak_flops(gpu.name);
  QUENCH_CHECK(published != kPublished.end() && peak, "GPU {} has no published rates", gpu.name);
  const double flops = *peak / *bf16_peak_flops(basis.device), link = published->link / kNvlink4;
  const std::optional<double> float8 = float8_peak_flops(gpu.name);
  return {.device = gpu.name,
          .bf16_flops = basis.bf16_flops * flops,
          .float8_flops = float8 ? basis.float8_flops * *float8 / *float8_peak_flops(basis.device) : 0,
          .attention_flops = basis.attention_flops * flops,
          .narrow_attention = basis.narrow_attention * flops,
          .memory_bytes = basis.memory_bytes * published->memory / kH200Memory,
          .gather_bytes = basis.gather_bytes * link,
          .reduce_bytes = basis.reduce_bytes * link,
          .seconds_per_sent_byte = basis.seconds_per_sent_byte / link,
          .source = "published peaks, times the share of them that an H200 reaches"};
}

}  // namespace quench
