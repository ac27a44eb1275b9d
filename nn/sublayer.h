#pragma once
// One of the two parts of a decoder layer, attention or feed-forward. A model family's table entry makes them
// (nn/models/table.h), so that layers of one model may differ.

#include <memory>

#include "core/ops/normed_linear.h"
#include "nn/forward_context.h"
#include "nn/model_config.h"
#include "nn/module.h"

namespace quench::nn {

class SubLayer : public Module {
 public:
  // x [N,H] (normalised) -> [N,H].
  [[nodiscard]] virtual Variable forward(const Variable& x, const ForwardContext& context) const = 0;
  // forward() of RMSNorm of x + norm.residual, one row, which writes norm.sum (core/ops/normed_linear.h), for results
  // that nothing differentiates. Undefined: the part has no such pass, and nothing is written.
  [[nodiscard]] virtual Variable forward_unnormed(const Tensor& /*x*/, const AddedNorm& /*norm*/,
                                                  const ForwardContext& /*context*/) const {
    return {};
  }
  // For the function that makes x.
  [[nodiscard]] virtual autograd::QuantOutputRequest input_quant_request() const = 0;
};

using SubLayerFactory = std::unique_ptr<SubLayer> (*)(const ModelConfig& config, std::int64_t layer,
                                                      const ParameterOptions& options);

template <class Part>
[[nodiscard]] std::unique_ptr<SubLayer> make_sublayer(const ModelConfig& config, std::int64_t layer,
                                                      const ParameterOptions& options) {
  return std::make_unique<Part>(config, layer, options);
}

}  // namespace quench::nn
