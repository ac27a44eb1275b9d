#pragma once
// Fake-quantized GEMMs of the LM head (core/ops/loss/lm_head_loss.h).

#include "core/ops/gemm.h"
#include "core/ops/loss/lm_head_loss.h"
#include "recipes/qat/qat_linear.h"

namespace quench::recipes {

// Lifetime: one loss.
class QatHead final : public HeadGemms {
 public:
  QatHead(const QatScheme& scheme, FakeQuantized weight) : input_(scheme.input), weight_(std::move(weight)) {}

  void logits(const Tensor& hidden, const Tensor& out) override {
    gemm({.a = fake_quantize(hidden, input_, false).values, .b = weight_.values, .c = out, .transpose_b = true});
  }

  void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                 float beta) override {
    const FakeQuantized x = fake_quantize(hidden, input_, true);
    if (dhidden.defined()) {
      gemm({.a = dlogits, .b = weight_.values, .c = dhidden});
      stop_gradient(dhidden, x.mask);
    }
    if (!dweight.defined()) return;
    gemm({.a = dlogits, .b = x.values, .c = dweight, .transpose_a = true, .beta = beta});
    stop_gradient(dweight, weight_.mask);
  }

 private:
  FakeFormat input_;
  FakeQuantized weight_;
};

}  // namespace quench::recipes
