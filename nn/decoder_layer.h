#pragma once
// One pre-norm decoder layer. Its parts are those of the model family (nn/models/table.h).

#include <utility>

#include "nn/rms_norm.h"
#include "nn/sublayer.h"

namespace quench::nn {

class DecoderLayer final : public Module {
 public:
  DecoderLayer(const ModelConfig& config, std::int64_t layer, const ParameterOptions& options);

  // The residual stream travels as a pair whose sum is the hidden state, so that each addition is fused into the norm
  // that follows it. `delta` is undefined before the first layer.
  [[nodiscard]] std::pair<Variable, Variable> forward(const Variable& residual, const Variable& delta,
                                                      const ForwardContext& context) const;

 private:
  // The stream residual + delta, and the part's output for its norm.
  [[nodiscard]] static std::pair<Variable, Variable> run_part(const SubLayer& part, const RmsNorm& norm,
                                                              const Variable& residual, const Variable& delta,
                                                              const ForwardContext& context);

  RmsNorm input_norm_;
  std::unique_ptr<SubLayer> attention_;
  RmsNorm post_attention_norm_;
  std::unique_ptr<SubLayer> feed_forward_;
};

}  // namespace quench::nn
