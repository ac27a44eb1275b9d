#include "train/plan/training_flops.h"

#include <fmt/format.h>

#include "train/metrics/peak_flops.h"

namespace quench {

TrainingFlops training_flops(const nn::ModelConfig& model, std::span<const recipes::LayerConversion> layers,
                             std::int64_t seq_len, std::optional<std::int64_t> adapters) {
  TrainingFlops flops;
  flops.high_precision = model.training_flops_per_token(seq_len);
  double gradients = 0;  // wgrad
  for (const recipes::LayerConversion& layer : layers) {
    // Active experts only.
    const double uses = layer.experts > 0 ? static_cast<double>(model.experts.per_token) : 1.0;
    const double product = 2 * uses * static_cast<double>(layer.in_features) * static_cast<double>(layer.out_features);
    gradients += product;
    for (const recipes::LinearGemm gemm : layer.float8) {
      if (adapters && gemm == recipes::LinearGemm::wgrad) continue;
      flops.float8 += product;
    }
  }
  flops.high_precision -= flops.float8;
  if (!adapters) return flops;
  if (model.tie_word_embeddings)  // the head, not a separate layer
    gradients += 2 * static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
  flops.high_precision += 6 * static_cast<double>(*adapters) - gradients;
  return flops;
}

std::optional<double> sol_seconds(const TrainingFlops& flops, std::string_view device_name) {
  const auto bf16 = bf16_peak_flops(device_name), float8 = float8_peak_flops(device_name);
  if (!bf16 || (flops.float8 > 0 && !float8)) return std::nullopt;
  return flops.high_precision / *bf16 + (flops.float8 > 0 ? flops.float8 / *float8 : 0);
}

std::string shares(const TrainingFlops& flops, DType high_precision, std::string_view codes) {
  if (flops.float8 == 0) return fmt::format("100% {}", to_string(high_precision));
  const double share = flops.float8 / flops.total() * 100;
  return fmt::format("{:.1f}% {}, {:.1f}% {}", share, codes, 100 - share, to_string(high_precision));
}

}  // namespace quench
