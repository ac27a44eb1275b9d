#pragma once
// Layer of multi-token prediction (MTP) at one depth: DeepSeek-V3 (arXiv:2412.19437), section 2.2.

#include <utility>

#include "nn/decoder/decoder_layer.h"
#include "nn/modules/linear.h"

namespace quench::nn {

// Names of parameters are those of DeepSeek's checkpoints, next to the block's: enorm, hnorm, eh_proj,
// shared_head.norm. Embedding and head are the model's.
class MtpLayer final : public DecoderLayer {
 public:
  MtpLayer(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options);

  // Block of eh_proj [enorm(embedding); hnorm(hidden)], as DecoderLayer::forward(). `embedding` [N,H]: of the token
  // `depth` positions after each row. `hidden` [N,H]: input of the head at the depth before.
  [[nodiscard]] std::pair<Variable, Variable> forward_depth(const Variable& embedding, const Variable& hidden,
                                                            const ForwardContext& context) const;
  // Norm between the block and the head.
  [[nodiscard]] const RmsNorm& head_norm() const noexcept { return shared_head_.norm; }

 private:
  struct SharedHead final : Module {
    SharedHead(const ModelConfig& config, const ParameterOptions& options);
    RmsNorm norm;
  };

  RmsNorm embedding_norm_, hidden_norm_;
  Linear projection_;
  SharedHead shared_head_;
};

}  // namespace quench::nn
