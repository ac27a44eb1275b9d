#pragma once
// A linear layer whose products run in float8 under a scheme.

#include <memory>

#include "nn/linear_kernel.h"
#include "recipes/float8/weight.h"
#include "recipes/health.h"

namespace quench::recipes {

struct Float8LinearOptions {
  // Dequantize the operands and multiply in f32 (any device) instead of running on float8 tensor cores.
  bool emulate = false;
  // Keep the weight's codes between the micro-batches of a step (Float8Weight).
  bool keep_weight = false;
  // Records what quantization loses.
  LayerHealth health = {};
  // Seed and stream of the draws that output gradients are rounded with, stochastically, in every pass with others
  // (autograd::Tape::pass); absent: they are rounded to nearest.
  std::optional<RandomKey> gradient_draws = std::nullopt;
};

// Differentiable in x, weight and bias. What is saved for the backward pass: under selective recompute an x that its
// producer makes again is not saved, only its scales are; otherwise its codes along the rows are (one byte an element
// in place of two). x itself is saved where its producer keeps it too (attention's output: no more memory) and where
// the scheme's wgrad runs in high precision. Tensor cores contract over multiples of 16: other sizes are padded with
// zeros, which change no sum. The parameter must outlive the backward pass.
class Float8Linear final : public nn::LinearKernel {
 public:
  Float8Linear(const Float8Scheme& scheme, const Float8LinearOptions& options);

  [[nodiscard]] autograd::Variable apply(const autograd::Variable& x, const nn::Parameter& weight,
                                         const autograd::Weight& bias) const override;
  [[nodiscard]] bool adds_onto() const override { return true; }
  [[nodiscard]] autograd::Variable apply_onto(const autograd::Variable& x, const nn::Parameter& weight,
                                              const autograd::Weight& bias, const Tensor& y) const override;
  [[nodiscard]] Tensor recompute(const autograd::Variable& x, const nn::Parameter& weight,
                                 const autograd::Weight& bias) const override;
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request(const nn::Parameter& weight) const override;
  [[nodiscard]] bool uses_weight_amax() const override;
  [[nodiscard]] nn::WeightFormats preferred_weight_formats(const nn::Parameter& weight) const override;
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const nn::Parameter& weight) const override;
  [[nodiscard]] std::string_view name() const override { return scheme_.name; }

 private:
  struct Input;
  struct Backward;
  // Of the current pass.
  [[nodiscard]] Float8Rounding gradient_rounding() const;

  // The layer's input as its products take it. `training`: their use for the weight's gradient counts, which decides
  // about padding too. `uses_rows`: codes for it are made, or (with `transpose_now` false) their scales.
  [[nodiscard]] Input quantized(const autograd::Variable& x, bool training, bool uses_rows, bool transpose_now) const;
  // y = x * weight^T + bias + beta * y. `backward_follows`: its use of the weight is prepared too.
  void multiply(const Input& input, const nn::Parameter& weight, const autograd::Weight& bias, const Tensor& y,
                float beta, bool backward_follows, const LayerHealth& health) const;
  // apply(), or with a beta of 1 apply_onto(), into `y`.
  [[nodiscard]] autograd::Variable product(const autograd::Variable& x, const nn::Parameter& weight,
                                           const autograd::Weight& bias, const Tensor& y, float beta) const;

  Float8Scheme scheme_;
  Float8LinearOptions options_;
  // Shared with the backward functions, which may outlive a layer whose recipe changes.
  std::shared_ptr<Float8Weight> weight_;
};

}  // namespace quench::recipes
