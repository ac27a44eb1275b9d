#pragma once
// Pre-norm decoder layer.

#include <utility>

#include "nn/rms_norm.h"
#include "nn/sublayer.h"

namespace quench::nn {

class DecoderLayer final : public Module {
 public:
  DecoderLayer(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options);

  // The hidden state is the sum of the pair; each addition is fused into the following norm. `delta` is undefined
  // before the first layer.
  [[nodiscard]] std::pair<Variable, Variable> forward(const Variable& residual, const Variable& delta,
                                                      const ForwardContext& context) const;

 private:
  // Returns residual + delta, and the sublayer's output.
  [[nodiscard]] static std::pair<Variable, Variable> run_part(const SubLayer& part, const RmsNorm& norm,
                                                              const Variable& residual, const Variable& delta,
                                                              const ForwardContext& context);

  RmsNorm input_norm_;
  std::unique_ptr<SubLayer> attention_;
  RmsNorm post_attention_norm_;
  std::unique_ptr<SubLayer> feed_forward_;
};

}  // namespace quench::nn
