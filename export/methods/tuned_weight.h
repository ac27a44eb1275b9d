#pragma once
// Weight under AutoRound (SignRound, arXiv:2309.05516; scale search of SignRoundV2): a rounding offset of at most half
// a step by element and one or two clipping factors by group, tuned by signed gradients. Deterministic.

#include <string>
#include <string_view>

#include "core/ops/quantize/tuned_rounding.h"
#include "export/methods/group_grid.h"
#include "export/methods/input_statistics.h"

namespace quench {

// Reason for refusal, or "".
[[nodiscard]] std::string autoround_problem(const OperandScheme& scheme);

// f32 [K]: squares of the mean absolute inputs.
[[nodiscard]] Tensor importance_of(const InputStatistics& inputs);

class TunedWeight {
 public:
  // `weight` [N,K], f32 or bf16, CPU; parameters, values and gradients are on `device`. Starts at offsets 0 and the
  // scales of least squared error, columns times `importance` (f32 [K]; undefined: 1). Throws as rtn(), and unsupported
  // as autoround_problem().
  TunedWeight(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
              std::optional<DType> scale_dtype = {}, std::optional<float> shared_amax = {},
              const Tensor& importance = {}, Device device = {});

  // To f32 or bf16 [N,K]: exactly what quantized() stores, times `multiplier`.
  void write_values(const Tensor& out, float multiplier = 1.0f) const;
  // f32 [N,K].
  [[nodiscard]] Tensor values() const;
  // tuned_step() (core/ops/quantize/tuned_rounding.h); `gradient` f32 [N,K] of the loss with respect to values().
  void step(const Tensor& gradient, float rate);
  // Parameters now, for restore(); the constructor keeps the start.
  void keep();
  void restore();
  [[nodiscard]] QuantizedWeight quantized() const;

 private:
  QuantizedWeight form_;  // as of rtn()
  GroupGrid grid_;
  TunedRounding now_;  // bounds: after the search
  Tensor kept_offsets_, kept_factors_;
};

}  // namespace quench
