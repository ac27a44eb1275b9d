#pragma once
// Kernel interface of linear layers, selected by the recipe.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "autograd/tape.h"
#include "core/ops/gated_activation.h"
#include "core/ops/loss/lm_head_loss.h"
#include "core/ops/normed_linear.h"
#include "nn/modules/parameter.h"

namespace quench::nn {

using autograd::Variable;

// Path of an untied LM head.
inline constexpr std::string_view kHeadName = "lm_head";

// Rows of a fused layer: name of the Hugging Face layer, and row count.
struct LinearPart {
  std::string name;
  std::int64_t rows;
};

// Layer as recipes see it.
struct LinearInfo {
  std::string name;  // module path, "model.layers.0.mlp.down_proj"
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  bool has_bias = false;
  Device device;
  // Kernel parameters are created unsharded.
  ParameterOptions parameters = {};
  // Parts by full name, "model.layers.0.self_attn.q_proj", of all rows; of experts those of the first. Empty before the
  // model is named.
  std::vector<LinearPart> parts = {};
};

// Parameter that a kernel adds to its layer.
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

// Data that a kernel wants to find with a weight.
struct WeightRequirements {
  WeightFormats gathered;  // preferred formats
  bool amax = false;       // maintained by the optimizer (Parameter::amax)
};

// Op fused after the GEMM.
enum class LinearEpilogue : std::uint8_t {
  none,
  gated_activation,  // activation(gate) * up of y = [gate, up] (core/ops/gated_linear.h)
  accumulate,        // y = out + x * weight^T (+ bias) in place; `out` is a constant
};

// Use of a call's result.
enum class LinearMode : std::uint8_t {
  recorded,   // on the current tape, if any
  inference,  // without a tape; y before a gated activation is not returned
  recompute,  // y of a recorded call bit for bit; nothing is recorded on the tape or in the health log
};

// Input, fused ops and mode of LinearKernel::run().
struct LinearCall {
  Variable x = {};                  // [N,in]
  const AddedNorm* norm = nullptr;  // prologue: RMSNorm of x + norm->residual, one row; writes norm->sum
  LinearEpilogue epilogue = LinearEpilogue::none;
  Tensor out = {};  // [N,out], of `accumulate`
  LinearMode mode = LinearMode::recorded;
  GatedActivation activation = GatedActivation::silu;  // activation function of `gated_activation`

  // With a prologue or an epilogue.
  [[nodiscard]] bool is_fused() const noexcept { return norm != nullptr || epilogue != LinearEpilogue::none; }
};

// Bit-identical to separate ops.
struct LinearOutput {
  Variable y = {};    // [N,out]; undefined for inference with a gated activation
  Tensor gated = {};  // [N,out/2]: result of a gated activation
};

class LinearKernel {
 public:
  virtual ~LinearKernel() = default;
  // y [N,out] = x [N,in] * weight [out,in]^T (+ bias [out]), differentiable in all three. Throws unsupported unless
  // supports(); nothing is written then.
  [[nodiscard]] LinearOutput run(const LinearCall& call, const Parameter& weight, const Weight& bias) const;
  // Whether run() does the call in one pass; independent of call.x and call.out. True for calls that are neither fused
  // nor a recompute.
  [[nodiscard]] virtual bool supports(const LinearCall& call, const Parameter& /*weight*/,
                                      const Weight& /*bias*/) const {
    return !call.is_fused() && call.mode != LinearMode::recompute;
  }
  // y of a recorded call that is not fused.
  [[nodiscard]] Variable apply(const Variable& x, const Parameter& weight, const Weight& bias) const;
  // Recomputes y of apply(); if not supported, by apply() without a tape.
  [[nodiscard]] Tensor recompute(const Variable& x, const Parameter& weight, const Weight& bias) const;

  // For the producer of x. value_needed is false only if run() alone reads x: set it where anything else does.
  [[nodiscard]] virtual autograd::QuantOutputRequest input_quant_request(const Parameter&) const { return {}; }
  // Changes only with the recipe.
  [[nodiscard]] virtual WeightRequirements weight_requirements(const Parameter&) const { return {}; }
  // Trained like the layer's own parameters.
  [[nodiscard]] virtual std::vector<KernelParameter> parameters() const { return {}; }
  // Learned scales [out, groups] of the weight among parameters(), or null.
  [[nodiscard]] const Parameter* weight_scales() const;
  // Sets parameters() derived from an initialised weight. A sharded weight has local rows only, as do kernel parameters
  // with equal row counts.
  virtual void begin_with(const Parameter& /*weight*/) const {}
  // Kernel that quantizes W + adapter update; null if not supported: the adapter's output is then added to the layer's.
  [[nodiscard]] virtual std::shared_ptr<const LinearKernel> with_adapter(
      const std::shared_ptr<LowRankAdapter>& /*adapter*/) const {
    return nullptr;
  }
  // The weight that calls read.
  [[nodiscard]] virtual const Parameter& read_weight(const Parameter& weight) const { return weight; }
  // For one loss; null: plain GEMMs.
  [[nodiscard]] virtual std::unique_ptr<HeadGemms> head_gemms(const Parameter&) const { return nullptr; }
  // For the conversion report: "bf16", "float8_rowwise", ...
  [[nodiscard]] virtual std::string_view name() const = 0;

 protected:
  // run() of a supported call.
  [[nodiscard]] virtual LinearOutput do_run(const LinearCall& call, const Parameter& weight,
                                            const Weight& bias) const = 0;
};

// Forwards everything.
class LinearKernelWrapper : public LinearKernel {
 public:
  explicit LinearKernelWrapper(std::shared_ptr<const LinearKernel> kernel) : kernel_(std::move(kernel)) {}
  [[nodiscard]] bool supports(const LinearCall& call, const Parameter& weight, const Weight& bias) const override {
    return kernel_->supports(call, weight, bias);
  }
  // Wrappers read x.
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request(const Parameter& weight) const override {
    autograd::QuantOutputRequest request = kernel_->input_quant_request(weight);
    request.value_needed = true;
    return request;
  }
  [[nodiscard]] WeightRequirements weight_requirements(const Parameter& weight) const override {
    return kernel_->weight_requirements(weight);
  }
  [[nodiscard]] std::vector<KernelParameter> parameters() const override { return kernel_->parameters(); }
  void begin_with(const Parameter& weight) const override { kernel_->begin_with(weight); }
  [[nodiscard]] std::shared_ptr<const LinearKernel> with_adapter(
      const std::shared_ptr<LowRankAdapter>& adapter) const override {
    return kernel_->with_adapter(adapter);
  }
  [[nodiscard]] const Parameter& read_weight(const Parameter& weight) const override {
    return kernel_->read_weight(weight);
  }
  [[nodiscard]] std::unique_ptr<HeadGemms> head_gemms(const Parameter& weight) const override {
    return kernel_->head_gemms(weight);
  }
  [[nodiscard]] std::string_view name() const override { return kernel_->name(); }

 protected:
  [[nodiscard]] LinearOutput do_run(const LinearCall& call, const Parameter& weight,
                                    const Weight& bias) const override {
    return kernel_->run(call, weight, bias);
  }
  [[nodiscard]] const LinearKernel& wrapped() const noexcept { return *kernel_; }

 private:
  std::shared_ptr<const LinearKernel> kernel_;
};

// Wrapper that observes calls. Supports no fused calls: x is the normalised input, y the whole output. Recompute calls
// are forwarded without observation.
class LinearObserver : public LinearKernelWrapper {
 public:
  using LinearKernelWrapper::LinearKernelWrapper;
  [[nodiscard]] bool supports(const LinearCall& call, const Parameter& weight, const Weight& bias) const final;
  [[nodiscard]] std::shared_ptr<const LinearKernel> with_adapter(
      const std::shared_ptr<LowRankAdapter>& /*adapter*/) const final {
    return nullptr;
  }

 protected:
  // Returns y.
  [[nodiscard]] virtual Variable observe(const Variable& x, const Parameter& weight, const Weight& bias) const = 0;

 private:
  [[nodiscard]] LinearOutput do_run(const LinearCall& call, const Parameter& weight, const Weight& bias) const final;
};

// GEMMs in the dtype of the weight.
[[nodiscard]] std::shared_ptr<const LinearKernel> high_precision_linear_kernel();

}  // namespace quench::nn
