#include "train/plan/training_flops.h"

#include <fmt/format.h>

#include "train/metrics/peak_flops.h"

namespace quench {

TrainingFlops training_flops(const nn::ModelConfig& model, std::span<const recipes::LayerConversion> layers,
                             std::int64_t seq_len) {
  TrainingFlops flops;
  for (const recipes::LayerConversion& layer : layers)
    flops.float8 += 2 * static_cast<double>(layer.in_features) * static_cast<double>(layer.out_features) *
                    static_cast<double>(layer.float8.size());
  flops.high_precision = model.training_flops_per_token(seq_len) - flops.float8;
  return flops;
}

std::optional<double> light_seconds(const TrainingFlops& flops, std::string_view device_name) {
  const auto bf16 = bf16_peak_flops(device_name), float8 = float8_peak_flops(device_name);
  if (!bf16 || (flops.float8 > 0 && !float8)) return std::nullopt;
  return flops.high_precision / *bf16 + (flops.float8 > 0 ? flops.float8 / *float8 : 0);
}

std::string shares(const TrainingFlops& flops, DType high_precision) {
  if (flops.float8 == 0) return fmt::format("100% {}", to_string(high_precision));
  const double share = flops.float8 / flops.total() * 100;
  return fmt::format("{:.1f}% float8, {:.1f}% {}", share, 100 - share, to_string(high_precision));
}

}  // namespace quench
