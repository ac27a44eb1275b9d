#pragma once
// Training FLOPs by operand dtype, and the time at a device's peak rates.

#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "core/number/dtype.h"
#include "nn/decoder/causal_lm.h"
#include "recipes/convert.h"
#include "train/session/model_setup.h"

namespace quench {

// Model FLOPs per token of a training step, forward and backward, without recompute.
struct TrainingFlops {
  double float8 = 0;          // GEMMs of linear layers with float8 operands
  double high_precision = 0;  // other GEMMs of linear layers, unconverted head, attention

  [[nodiscard]] double total() const noexcept { return float8 + high_precision; }
};

// Backward GEMMs that frozen parameters spare.
struct SparedWork {
  std::set<std::string> weight_gradients;  // linear layers with a frozen weight
  bool tied_head = false;                  // the head's wgrad
  std::int64_t layers = 0;                 // first decoder layers without backward pass
};

// By parameters that training.freeze and training.train freeze; none under adapters.
[[nodiscard]] SparedWork spared_work(nn::CausalLm& model);

// `adapters`: their parameter count; the base is frozen and has no wgrad. Attention of
// `spared` layers is an equal share of all.
[[nodiscard]] TrainingFlops training_flops(const nn::ModelConfig& model,
                                           std::span<const recipes::LayerConversion> layers, std::int64_t seq_len,
                                           std::optional<std::int64_t> adapters = std::nullopt,
                                           const SparedWork& spared = {});
// For a run's model, its recipe, adapters and frozen parameters.
[[nodiscard]] TrainingFlops training_flops(const ModelSetup& setup, std::int64_t seq_len);

// Seconds at the peak of each dtype (train/metrics/peak_flops.h); nullopt without a known peak for a dtype in use.
[[nodiscard]] std::optional<double> sol_seconds(const TrainingFlops& flops, std::string_view device_name);

// "60.0% float8, 40.0% bf16", or "100% bf16". codes: "float8" or "int8".
[[nodiscard]] std::string shares(const TrainingFlops& flops, DType high_precision, std::string_view codes = "float8");

}  // namespace quench
