#pragma once
// QAT linear layer (Jacob et al., 2018) with straight-through gradients.

#include <memory>
#include <string>

#include "nn/modules/low_rank_adapter.h"
#include "recipes/qat/fake_weight.h"

namespace quench::recipes {

// Fake quantization of both operands.
struct QatScheme {
  std::string_view name;
  FakeFormat input;
  FakeFormat weight;
};

// y = q(x) q(W)^T + bias in the dtype of x. Gradients of x and W are zero where clipped. Saved for the backward pass:
// q(x), or x where it is free, and one mask bit per element of x if its format clips. q(W) is made per pass or cached
// until W changes.
// With an adapter the quantized weight is W + update, W is frozen, and gradients of A and B ignore the clipping mask,
// which would need the full gradient of W.
// With `scales` (scale_parameter.h) the scales of W are that parameter; adapters are excluded.
class QatLinear final : public nn::LinearKernel {
 public:
  QatLinear(const QatScheme& scheme, bool keep_weight, std::shared_ptr<nn::LowRankAdapter> adapter = nullptr,
            std::shared_ptr<nn::Parameter> scales = nullptr);
  ~QatLinear() override;

  [[nodiscard]] std::vector<nn::KernelParameter> parameters() const override;
  [[nodiscard]] std::shared_ptr<const nn::LinearKernel> with_adapter(
      const std::shared_ptr<nn::LowRankAdapter>& adapter) const override;
  void begin_with(const nn::Parameter& weight) const override;
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& weight) const override;
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  struct Backward;
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                        const nn::Weight& bias) const override;

  QatScheme scheme_;
  bool keep_weight_;
  std::shared_ptr<nn::LowRankAdapter> adapter_;
  std::shared_ptr<nn::Parameter> scales_;
  std::string name_;
  // Shared with backward functions, which may outlive this layer's kernel.
  std::shared_ptr<FakeWeight> weight_;
};

}  // namespace quench::recipes
