#pragma once
// How a linear layer is computed. nn::Linear asks; precision recipes answer (recipes/).

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

// The path of the layer that makes logits, where it is no other's table.
inline constexpr std::string_view kHeadName = "lm_head";

// What a recipe may look at when it chooses a kernel for a layer.
struct LinearInfo {
  std::string name;  // module path, "model.layers.0.mlp.down_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool has_bias = false;
  Device device;
  // For parameters of the kernel's own, which nobody has shared out yet.
  ParameterOptions parameters = {};
};

// A parameter of a kernel's own: an adapter, a learned scale.
struct KernelParameter {
  std::string name;  // within the layer: "lora_A.weight"
  Parameter* parameter;
  // Its pieces, with names within the layer's parent: "q_proj.lora_A.weight". Empty: one, of the parameter's own name.
  std::vector<ParameterPiece> pieces = {};
};

class LowRankAdapter;

// In which form a kernel's products read the weight of its layer, where whoever brings the weight can bring it so
// (autograd::WeightStorage::acquire_quantized); absent: as values.
struct WeightFormats {
  std::optional<autograd::WeightFormat> forward, backward;
  friend bool operator==(const WeightFormats&, const WeightFormats&) = default;
};

class LinearKernel {
 public:
  virtual ~LinearKernel() = default;
  // y [N,out] = x [N,in] * weight [out,in]^T (+ bias [out]), differentiable in all three.
  [[nodiscard]] virtual Variable apply(const Variable& x, const Parameter& weight, const Weight& bias) const = 0;
  // The value that an apply() to the same x recorded, once more for its backward pass: the same bits, nothing recorded
  // and nothing measured. This one suits kernels whose product does not depend on whether it is recorded.
  [[nodiscard]] virtual Tensor recompute(const Variable& x, const Parameter& weight, const Weight& bias) const;
  // silu(gate) * up of the halves [gate, up] of the product, [N,out/2], where the kernel has that in one pass and
  // nothing is recorded: the bits of apply() and SwiGLU behind it. Undefined: it has not.
  [[nodiscard]] virtual Tensor gated_product(const Tensor& /*x*/, const Parameter& /*weight*/,
                                             const Weight& /*bias*/) const {
    return {};
  }
  // apply() to RMSNorm of x + norm.residual, one row, which writes norm.sum (core/ops/normed_linear.h), or with `gated`
  // what gated_product() gives, where the kernel has that in one pass and nothing is recorded. Undefined: it has not,
  // and nothing is written.
  [[nodiscard]] virtual Tensor normed_product(const Tensor& /*x*/, const AddedNorm& /*norm*/, bool /*gated*/,
                                              const Parameter& /*weight*/, const Weight& /*bias*/) const {
    return {};
  }
  // apply() to x whose result goes to SwiGLU. Where the kernel has that in the same pass, `gated` [N,out/2] is written,
  // the bits of SwiGLU behind it; else it stays undefined.
  [[nodiscard]] virtual Variable apply_gated(const Variable& x, const Parameter& weight, const Weight& bias,
                                             Tensor& /*gated*/) const {
    return apply(x, weight, bias);
  }
  // Whether apply_onto() is there.
  [[nodiscard]] virtual bool adds_onto() const { return false; }
  // apply(), added to what `y` [N,out] holds, a constant, in its place: who has something to add to the output writes
  // it first, and nothing is read twice. recompute() is without it. Throws unsupported unless adds_onto().
  [[nodiscard]] virtual Variable apply_onto(const Variable& x, const Parameter& weight, const Weight& bias,
                                            const Tensor& y) const;
  // What the function that makes x may write beside it.
  [[nodiscard]] virtual autograd::QuantOutputRequest input_quant_request(const Parameter&) const { return {}; }
  // What the kernel trains beside the layer's weight. They are the layer's parameters as long as it has the kernel:
  // named, initialised, saved, updated (or frozen) like its own.
  [[nodiscard]] virtual std::vector<KernelParameter> parameters() const { return {}; }
  // The layer's weight has its first values: those of parameters() that follow from it are written. Of a shared-out
  // weight each process has some rows, and so it has of the kernel's parameters that have as many rows.
  virtual void begin_with(const Parameter& /*weight*/) const {}
  // The scales [out, groups] of the weight's integer codes, where they are a parameter of the kernel's; else null.
  [[nodiscard]] virtual const Parameter* weight_scales() const { return nullptr; }
  // Whether the optimizer should keep up Parameter::amax of the layer's weight.
  [[nodiscard]] virtual bool uses_weight_amax() const { return false; }
  // Asked before each gather: answers may change with the recipe alone.
  [[nodiscard]] virtual WeightFormats preferred_weight_formats(const Parameter&) const { return {}; }
  // A kernel of the same precision for the weight W + (the adapter's product), which takes part in its quantization;
  // null: it has none, and the adapter's product is added to the layer's output.
  [[nodiscard]] virtual std::shared_ptr<const LinearKernel> with_adapter(
      const std::shared_ptr<LowRankAdapter>& /*adapter*/) const {
    return nullptr;
  }
  // The layer's products as the head of a language model, for one loss; null: plain gemms.
  [[nodiscard]] virtual std::unique_ptr<HeadGemms> head_gemms(const Parameter&) const { return nullptr; }
  // One word for the conversion report: "bf16", "float8_rowwise", ...
  [[nodiscard]] virtual std::string_view name() const = 0;
};

// Runs another kernel; what a wrapper does not override is the other kernel's.
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

// Products in the dtype of the operands: what every layer uses until a recipe says otherwise.
[[nodiscard]] std::shared_ptr<const LinearKernel> high_precision_linear_kernel();

}  // namespace quench::nn
