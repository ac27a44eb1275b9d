#pragma once
// MLA (DeepSeek-V2, arXiv:2405.04434, section 2.1). Training uses the low-rank projections unmerged; the KV cache holds
// full keys and values.

#include <optional>

#include "core/ops/mla_heads.h"
#include "nn/attention/attend.h"
#include "nn/modules/linear.h"
#include "nn/modules/rms_norm.h"
#include "nn/modules/sublayer.h"

namespace quench::nn {

class LatentAttention final : public SubLayer {
 public:
  LatentAttention(const ModelConfig& config, const BlockSpec& block, const ParameterOptions& options);
  [[nodiscard]] Variable forward(const Variable& x, const ForwardContext& context) const override;
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override { return {}; }

 private:
  LatentAttention(const ModelConfig& config, const BlockSpec& block, const MlaSpec& mla,
                  const ParameterOptions& options);
  [[nodiscard]] Variable queries(const Variable& x) const;

  MlaHeadsShape shape_;
  AttendOptions attend_;
  std::int64_t kv_rank_;
  std::optional<Linear> q_a_proj_;
  std::optional<RmsNorm> q_a_norm_;
  Linear q_proj_;
  Linear kv_a_proj_;
  RmsNorm kv_a_norm_;
  Linear kv_b_proj_;
  Linear o_proj_;
};

}  // namespace quench::nn
