#pragma once
// A linear layer whose product sees its operands as they will be when they are stored in few bits: quantization-aware
// training (Jacob et al., 2018), with gradients straight through the rounding.

#include <memory>
#include <string>

#include "nn/low_rank_adapter.h"
#include "recipes/qat/fake_weight.h"

namespace quench::recipes {

struct QatScheme {
  std::string_view name;
  FakeFormat input;
  FakeFormat weight;
};

// y = q(x) q(W)^T + bias in the dtype of x. Gradients of x and W are those of q(x) and q(W), without the elements that
// their range of codes clipped; none flows into a scale. Saved for the backward pass: q(x), or the way to x where it
// will be there again anyway, and a bit an element of x where the input's format clips. q(W) is made anew in each pass,
// or kept until W changes.
//
// With an adapter the quantized weight is W + its update, so that the layer trains what its merged form will be. W is
// frozen then, and the gradients of A and B are those of the product without the mask of the clipped weights, which
// would take the gradient of all of W.
//
// With `scales` those of W's codes are that parameter (scale_parameter.h), which begins as what follows from W; there
// is no adapter then.
class QatLinear final : public nn::LinearKernel {
 public:
  QatLinear(const QatScheme& scheme, bool keep_weight, std::shared_ptr<nn::LowRankAdapter> adapter = nullptr,
            std::shared_ptr<nn::Parameter> scales = nullptr);
  ~QatLinear() override;

  [[nodiscard]] nn::Variable apply(const nn::Variable& x, const nn::Parameter& weight,
                                   const nn::Weight& bias) const override;
  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override;
  [[nodiscard]] std::shared_ptr<const nn::LinearKernel> with_adapter(
      const std::shared_ptr<nn::LowRankAdapter>& adapter) const override;
  void begin_with(const nn::Parameter& weight) const override;
  [[nodiscard]] const nn::Parameter* weight_scales() const override { return scales_.get(); }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& weight) const override;
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  struct Backward;

  QatScheme scheme_;
  bool keep_weight_;
  std::shared_ptr<nn::LowRankAdapter> adapter_;
  std::shared_ptr<nn::Parameter> scales_;
  std::string name_;
  // Shared with the backward functions, which may outlive a layer whose recipe changes.
  std::shared_ptr<FakeWeight> weight_;
};

}  // namespace quench::recipes
