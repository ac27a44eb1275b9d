#pragma once

#include "core/ops/loss/lm_head_loss.h"
#include "recipes/float8/gemms.h"
#include "recipes/float8/weight.h"
#include "recipes/health.h"

namespace quench::recipes {

// Float8 GEMMs of the LM head (core/ops/loss/lm_head_loss.h). Lifetime: one loss. The weight is quantized once for all
// chunks; hidden states and logit gradients are scaled per chunk.
class Float8Head final : public HeadGemms {
 public:
  // `training`: gradients() will be called. `rounding` applies to logit gradients.
  Float8Head(const Float8Gemms& products, const nn::Parameter& weight, LayerHealth health, bool training,
             const Float8Rounding& rounding)
      : products_(products),
        weight_(weight.weight().acquire()),
        known_(known_maxima(weight)),
        health_(std::move(health)),
        training_(training),
        rounding_(rounding) {}

  void logits(const Tensor& hidden, const Tensor& out) override;
  void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                 float beta) override;

 private:
  Float8Gemms products_;
  autograd::Weight::Acquired weight_;  // [V,H]
  QuantOutputs known_;                 // amax of the weight
  Float8Matrix weight_codes_;
  bool weight_made_ = false;
  LayerHealth health_;
  bool training_;
  Float8Rounding rounding_;
};

}  // namespace quench::recipes
