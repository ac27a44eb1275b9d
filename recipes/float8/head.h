#pragma once
// LM head with float8 GEMMs.

#include <optional>

#include "core/ops/loss/lm_head_loss.h"
#include "recipes/float8/gemms.h"
#include "recipes/float8/weight.h"
#include "recipes/health.h"

namespace quench::recipes {

// Float8 GEMMs of the LM head (core/ops/loss/lm_head_loss.h). Lifetime: one loss. The weight is quantized once for all
// chunks, and then released if all GEMMs are float8; hidden states are scaled per chunk. Tensorwise logit gradients of
// a loss with a bound (cross-entropy: that of grad_scale) have the scale of the bound, others that of their chunk's
// amax.
class Float8Head final : public HeadGemms {
 public:
  // `training`: gradients() will be called; the weight is then cast in both orientations, unless those of hidden states
  // are not expected. `rounding` applies to logit gradients.
  Float8Head(const Float8Gemms& gemms, const nn::Parameter& weight, LayerHealth health, bool training,
             const Float8Rounding& rounding)
      : gemms_(gemms),
        device_(weight.weight().device()),
        known_(known_amax(weight)),
        health_(std::move(health)),
        hidden_gradients_(training),
        rounding_(rounding) {
    weight_.emplace(weight.weight().acquire());
  }

  // Casts the weight, before the loss allocates its logits.
  void expect_hidden_gradients(bool expected) override;
  void logits(const Tensor& hidden, const Tensor& out) override;
  void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                 float beta) override;
  [[nodiscard]] QuantTensor gradient_codes(const Shape& shape, DType source, float bound) override;
  void gradients_of_codes(const QuantTensor& dlogits, const Tensor& hidden, const Tensor& dhidden,
                          const Tensor& dweight, float beta) override;

 private:
  void make_weight();
  void hidden_gradient(const QuantTensor& dlogits, const Tensor& dhidden);
  void weight_gradient(const QuantTensor& dlogits, const Tensor& hidden, const Tensor& dweight, float beta);

  Float8Gemms gemms_;
  Device device_;
  std::optional<autograd::Weight::Acquired> weight_;  // [V,H]; until released
  QuantOutputs known_;                                // amax of the weight
  Float8Matrix weight_codes_;
  bool weight_made_ = false;
  LayerHealth health_;
  bool hidden_gradients_;
  Float8Rounding rounding_;
  Tensor bound_;        // f32 [], of logit gradients; undefined: unknown
  Tensor bound_scale_;  // their encode scale
};

}  // namespace quench::recipes
