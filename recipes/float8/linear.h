#pragma once
// Linear layer with float8 GEMMs.

#include <memory>

#include "nn/modules/linear_kernel.h"
#include "recipes/float8/weight.h"
#include "recipes/health.h"

namespace quench::recipes {

struct Float8LinearOptions {
  // In f32, on any device.
  bool emulate = false;
  // Across micro-batches (Float8Weight).
  bool keep_weight = false;
  LayerHealth health = {};
  // Key of stochastic rounding of output gradients, with new draws in every pass; absent: round to nearest.
  std::optional<RandomKey> gradient_draws = std::nullopt;
  // Delayed scaling of x and dy, with tensorwise schemes.
  LayerScaling scaling = {};
};

// Saved for the backward pass: the columnwise quantized x; under selective recompute only its scales if the producer
// recomputes x; x itself where its producer saves it anyway or wgrad runs in high precision. Sizes that are not
// multiples of 16 are zero-padded for tensor cores. The parameter must outlive the backward pass.
class Float8Linear final : public nn::LinearKernel {
 public:
  Float8Linear(const Float8Scheme& scheme, const Float8LinearOptions& options);

  // Accumulates, and recomputes calls that did not.
  [[nodiscard]] bool supports(const nn::LinearCall& call, const nn::Parameter& weight,
                              const autograd::Weight& bias) const override;
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request(const nn::Parameter& weight) const override;
  [[nodiscard]] nn::WeightRequirements weight_requirements(const nn::Parameter& weight) const override;
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& weight) const override;
  [[nodiscard]] std::string_view name() const override { return scheme_.name; }

 private:
  struct Input;
  struct Backward;
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                        const autograd::Weight& bias) const override;
  [[nodiscard]] Float8Rounding gradient_rounding() const;
  [[nodiscard]] autograd::QuantOutputRequest gradient_request(const Backward& backward) const;

  // `wgrad_follows`: rows are padded for it. `columnwise_wanted`: the columnwise form is made, or only its scales if
  // `transpose_now` is false. `records`: the amax enters the history of delayed scaling.
  [[nodiscard]] Input quantized(const autograd::Variable& x, bool wgrad_follows, bool columnwise_wanted,
                                bool transpose_now, bool records) const;
  // y = x * weight^T + bias + beta * y. `backward_follows`: also prepares the weight for dgrad.
  void multiply(const Input& input, const nn::Parameter& weight, const autograd::Weight& bias, const Tensor& y,
                float beta, bool backward_follows, const LayerHealth& health) const;
  // multiply(), recorded on the current tape, if any.
  [[nodiscard]] autograd::Variable forward(const autograd::Variable& x, const nn::Parameter& weight,
                                           const autograd::Weight& bias, const Tensor& y, float beta) const;
  [[nodiscard]] Tensor recomputed(const autograd::Variable& x, const nn::Parameter& weight,
                                  const autograd::Weight& bias) const;

  Float8Scheme scheme_;
  Float8LinearOptions options_;
  // Shared with backward functions, which may outlive this layer's kernel.
  std::shared_ptr<Float8Weight> weight_;
};

}  // namespace quench::recipes
