#pragma once
// Weight under AutoRound (SignRound, arXiv:2309.05516; scale search of SignRoundV2): a rounding offset of at most half
// a step by element and one or two clipping factors by group, tuned by signed gradients. Deterministic.

#include <string>
#include <string_view>
#include <vector>

#include "export/methods/group_grid.h"
#include "export/methods/input_statistics.h"

namespace quench {

// Reason for refusal, or "".
[[nodiscard]] std::string autoround_problem(const OperandScheme& scheme);

// f32 [K]: squares of the mean absolute inputs.
[[nodiscard]] Tensor importance_of(const InputStatistics& inputs);

class TunedWeight {
 public:
  // `weight` [N,K], f32 or bf16, CPU. Starts at offsets 0 and the scales of least squared error, columns times
  // `importance` (f32 [K]; undefined: 1). Throws as rtn(), and unsupported as autoround_problem().
  TunedWeight(const Tensor& weight, const OperandScheme& scheme, std::string_view name,
              std::optional<DType> scale_dtype = {}, std::optional<float> shared_amax = {},
              const Tensor& importance = {});

  // f32 [N,K]: exactly what quantized() stores.
  [[nodiscard]] Tensor values() const;
  // `gradient` f32 [N,K], CPU, of the loss with respect to values(). Parameters move by `rate` against the sign of
  // their gradient (straight-through); offsets stay in +-0.5, factors in [0.5, 1.5] of the start.
  void step(const Tensor& gradient, float rate);
  // Parameters now, for restore(); the constructor keeps the start.
  void keep();
  void restore();
  [[nodiscard]] QuantizedWeight quantized() const;

 private:
  struct Group {
    GroupBounds bounds;       // after the search
    float low = 1, high = 1;  // factors; one moves both if symmetric
  };
  struct Parameters {
    Tensor offsets;  // f32 [N,K]
    std::vector<Group> groups;
  };
  [[nodiscard]] GridScale scale_of(const Group& group) const {
    return grid_.scale(group.bounds.low * group.low, group.bounds.high * group.high);
  }

  QuantizedWeight form_;  // as of rtn()
  GroupGrid grid_;
  Tensor weight_;  // f32
  Parameters now_, kept_;
};

}  // namespace quench
