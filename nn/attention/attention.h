#pragma once
// Grouped-query attention with fused QKV projection, RoPE and optional per-head norms.

#include <optional>

#include "nn/attention/attend.h"
#include "nn/modules/linear.h"
#include "nn/modules/rms_norm.h"
#include "nn/modules/sublayer.h"

namespace quench::nn {

class Attention final : public SubLayer {
 public:
  Attention(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options);
  [[nodiscard]] Variable forward(const Variable& x, const ForwardContext& context) const override;
  [[nodiscard]] Variable forward_unnormed(const Tensor& x, const AddedNorm& norm,
                                          const ForwardContext& context) const override;
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override {
    return qkv_proj_.sole_input_quant_request();
  }

 private:
  // `own`: the heads of this rank of the tensor axis.
  Attention(const ModelConfig& config, const BlockSpec& block, const AttentionSpec& own,
            const ParameterOptions& options);
  [[nodiscard]] Variable mix(Variable qkv, const ForwardContext& context) const;

  AttendOptions attend_;
  RmsNormForm qk_form_;
  Linear qkv_proj_;
  Linear o_proj_;
  std::optional<RmsNorm> q_norm_;
  std::optional<RmsNorm> k_norm_;
  std::optional<Parameter> sinks_;  // [heads]
  bool rotated_;
  bool interleaved_;
  bool fuses_rotation_;  // into attention over a KV cache
  Weight unit_;          // ones [head_dim], for norms without a weight; undefined: no such norm
};

}  // namespace quench::nn
