#pragma once
// Kernel interface of linear layers, selected by the recipe.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/quant_output_request.h"
#include "autograd/tape.h"
#include "core/ops/lm_head_loss.h"
#include "core/ops/normed_linear.h"
#include "nn/parameter.h"

namespace quench::nn {

using autograd::Variable;

// Path of an untied LM head.
inline constexpr std::string_view kHeadName = "lm_head";

struct LinearInfo {
  std::string name;  // module path, "model.layers.0.mlp.down_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool has_bias = false;
  Device device;
  // Kernel parameters are created unsharded.
  ParameterOptions parameters = {};
};

struct KernelParameter {
  std::string name;  // within the layer: "lora_A.weight"
  Parameter* parameter;
  // Named within the layer's parent: "q_proj.lora_A.weight". Empty: one piece.
  std::vector<ParameterPiece> pieces = {};
};

class LowRankAdapter;

// Formats of all-gathered quantized weights; absent: unquantized.
struct WeightFormats {
  std::optional<autograd::WeightFormat> forward, backward;
  friend bool operator==(const WeightFormats&, const WeightFormats&) = default;
};

class LinearKernel {
 public:
  virtual ~LinearKernel() = default;
  // y [N,out] = x [N,in] * weight [out,in]^T (+ bias [out]), differentiable in all three.
  [[nodiscard]] virtual Variable apply(const Variable& x, const Parameter& weight, const Weight& bias) const = 0;
  // Recomputes the value of a recorded apply() in the backward pass, bit for bit; records nothing on the tape or in the
  // health log.
  [[nodiscard]] virtual Tensor recompute(const Variable& x, const Parameter& weight, const Weight& bias) const;
  // Fused linear + SwiGLU for inference: silu(gate) * up of [gate, up], [N,out/2]; bit-identical to the unfused
  // functions. Undefined if not supported.
  [[nodiscard]] virtual Tensor gated_product(const Tensor& /*x*/, const Parameter& /*weight*/,
                                             const Weight& /*bias*/) const {
    return {};
  }
  // Fused RMSNorm of x + norm.residual and apply() (gated_product() if `gated`) of one row, for inference. Writes
  // norm.sum. If not supported: undefined, and nothing is written.
  [[nodiscard]] virtual Tensor normed_product(const Tensor& /*x*/, const AddedNorm& /*norm*/, bool /*gated*/,
                                              const Parameter& /*weight*/, const Weight& /*bias*/) const {
    return {};
  }
  // apply() before SwiGLU. If fused, writes `gated` [N,out/2], bit-identical to SwiGLU of the result; else leaves it
  // undefined.
  [[nodiscard]] virtual Variable apply_gated(const Variable& x, const Parameter& weight, const Weight& bias,
                                             Tensor& /*gated*/) const {
    return apply(x, weight, bias);
  }
  [[nodiscard]] virtual bool adds_onto() const { return false; }
  // apply() accumulated in place onto `y` [N,out], a constant. recompute() excludes y. Throws unsupported unless
  // adds_onto().
  [[nodiscard]] virtual Variable apply_onto(const Variable& x, const Parameter& weight, const Weight& bias,
                                            const Tensor& y) const;
  [[nodiscard]] virtual autograd::QuantOutputRequest input_quant_request(const Parameter&) const { return {}; }
  // Trained like the layer's own parameters.
  [[nodiscard]] virtual std::vector<KernelParameter> parameters() const { return {}; }
  // Sets parameters() derived from an initialised weight. A sharded weight has local rows only, as do kernel parameters
  // with equal row counts.
  virtual void begin_with(const Parameter& /*weight*/) const {}
  // Learned scales [out, groups] of the weight, or null.
  [[nodiscard]] virtual const Parameter* weight_scales() const { return nullptr; }
  [[nodiscard]] virtual bool uses_weight_amax() const { return false; }
  // Changes only with the recipe.
  [[nodiscard]] virtual WeightFormats preferred_weight_formats(const Parameter&) const { return {}; }
  // Kernel that quantizes W + adapter update; null if not supported: the adapter's output is then added to the layer's.
  [[nodiscard]] virtual std::shared_ptr<const LinearKernel> with_adapter(
      const std::shared_ptr<LowRankAdapter>& /*adapter*/) const {
    return nullptr;
  }
  // For one loss; null: plain GEMMs.
  [[nodiscard]] virtual std::unique_ptr<HeadGemms> head_gemms(const Parameter&) const { return nullptr; }
  // For the conversion report: "bf16", "float8_rowwise", ...
  [[nodiscard]] virtual std::string_view name() const = 0;
};

class LinearKernelWrapper : public LinearKernel {
 public:
  explicit LinearKernelWrapper(std::shared_ptr<const LinearKernel> kernel) : kernel_(std::move(kernel)) {}
  [[nodiscard]] Variable apply(const Variable& x, const Parameter& weight, const Weight& bias) const override {
    return kernel_->apply(x, weight, bias);
  }
  [[nodiscard]] Tensor recompute(const Variable& x, const Parameter& weight, const Weight& bias) const override {
    return kernel_->recompute(x, weight, bias);
  }
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request(const Parameter& weight) const override {
    return kernel_->input_quant_request(weight);
  }
  [[nodiscard]] std::vector<KernelParameter> parameters() const override { return kernel_->parameters(); }
  void begin_with(const Parameter& weight) const override { kernel_->begin_with(weight); }
  [[nodiscard]] const Parameter* weight_scales() const override { return kernel_->weight_scales(); }
  [[nodiscard]] bool uses_weight_amax() const override { return kernel_->uses_weight_amax(); }
  [[nodiscard]] WeightFormats preferred_weight_formats(const Parameter& weight) const override {
    return kernel_->preferred_weight_formats(weight);
  }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const Parameter& weight) const override {
    return kernel_->head_gemms(weight);
  }
  [[nodiscard]] std::string_view name() const override { return kernel_->name(); }

 protected:
  [[nodiscard]] const LinearKernel& wrapped() const noexcept { return *kernel_; }

 private:
  std::shared_ptr<const LinearKernel> kernel_;
};

[[nodiscard]] std::shared_ptr<const LinearKernel> high_precision_linear_kernel();

}  // namespace quench::nn
