#pragma once
// The arithmetic of a training step by the type of its operands, and the time it takes at a device's peak rates.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/number/dtype.h"
#include "nn/model_config.h"
#include "recipes/convert.h"

namespace quench {

// Model FLOPs of one token of a training step, forward and backward; recomputation is not counted.
struct TrainingFlops {
  double float8 = 0;          // products of linear layers whose operands are float8
  double high_precision = 0;  // the other products of linear layers, the head where it is not converted, attention

  [[nodiscard]] double total() const noexcept { return float8 + high_precision; }
};

// With `adapters`, the number of their parameters, the model is frozen: its weights have no gradients.
[[nodiscard]] TrainingFlops training_flops(const nn::ModelConfig& model,
                                           std::span<const recipes::LayerConversion> layers, std::int64_t seq_len,
                                           std::optional<std::int64_t> adapters = std::nullopt);

// Seconds of these FLOPs with each type at its own peak (train/metrics/peak_flops.h); nothing on a device without a
// known peak for a type that takes part.
[[nodiscard]] std::optional<double> sol_seconds(const TrainingFlops& flops, std::string_view device_name);

// "60.0% float8, 40.0% bf16", or "100% bf16".
[[nodiscard]] std::string shares(const TrainingFlops& flops, DType high_precision);

}  // namespace quench
