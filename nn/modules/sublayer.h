#pragma once
// Attention or feed-forward part of a decoder layer.

#include <memory>

#include "core/ops/normed_linear.h"
#include "nn/modules/forward_context.h"
#include "nn/modules/module.h"
#include "nn/spec/model_config.h"

namespace quench::nn {

class SubLayer : public Module {
 public:
  // x [N,H] (normalised) -> [N,H].
  [[nodiscard]] virtual Variable forward(const Variable& x, const ForwardContext& context) const = 0;
  // Fused RMSNorm of x + norm.residual and forward(), for one row without gradient. Writes norm.sum. If not supported:
  // undefined, and nothing is written.
  [[nodiscard]] virtual Variable forward_unnormed(const Tensor& /*x*/, const AddedNorm& /*norm*/,
                                                  const ForwardContext& /*context*/) const {
    return {};
  }
  // True if row n of the result depends on row n of x alone, up to terms of a loss: forward() then takes
  // tiles of rows too.
  [[nodiscard]] virtual bool is_rowwise() const { return false; }
  // For the producer of x. value_needed is false only if forward() alone reads x: set it where anything else does.
  [[nodiscard]] virtual autograd::QuantOutputRequest input_quant_request() const = 0;
};

// SubLayerFactory of a class.
template <class Part>
[[nodiscard]] std::unique_ptr<SubLayer> make_sublayer(const ModelConfig& config, const BlockSpec& block,
                                                      const ParameterOptions& options) {
  return std::make_unique<Part>(config, block, options);
}

}  // namespace quench::nn
