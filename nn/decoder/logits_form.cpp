#include "nn/decoder/logits_form.h"

#include <optional>

#include "autograd/tape.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/soft_cap.h"

namespace quench::nn {
namespace {

class FormedGemms final : public HeadGemms {
 public:
  FormedGemms(std::unique_ptr<HeadGemms> gemms, float factor, float cap, const autograd::Weight& weight)
      : gemms_(std::move(gemms)), factor_(factor), cap_(cap) {
    if (gemms_ == nullptr) weight_.emplace(weight.acquire());
  }

  void expect_hidden_gradients(bool expected) override {
    if (gemms_ != nullptr) gemms_->expect_hidden_gradients(expected);
  }

  void logits(const Tensor& hidden, const Tensor& out) override {
    if (gemms_ != nullptr)
      gemms_->logits(hidden, out);
    else
      gemm({.a = hidden, .b = weight_->value(), .c = out, .transpose_b = true});
    if (cap_ == 0.0f) return scale({out, factor_});
    soft_cap({.x = out, .factor = factor_, .cap = cap_});
    if (autograd::Tape::current() == nullptr) return;
    // The loss may write its gradients in place of the logits.
    const MemoryScope scope(MemoryCategory::workspace);
    if (!capped_.defined() || capped_.size(0) < out.size(0) || capped_.size(1) != out.size(1))
      capped_ = Tensor::empty(out.shape(), hidden.dtype(), out.device());
    cast({out, capped_.narrow(0, 0, out.size(0))});
  }

  void gradients(const Tensor& dlogits, const Tensor& hidden, const Tensor& dhidden, const Tensor& dweight,
                 float beta) override {
    if (cap_ == 0.0f)
      scale({dlogits, factor_});
    else
      soft_cap_backward({.dx = dlogits, .y = capped_.narrow(0, 0, dlogits.size(0)), .factor = factor_, .cap = cap_});
    if (gemms_ != nullptr) return gemms_->gradients(dlogits, hidden, dhidden, dweight, beta);
    if (dhidden.defined()) gemm({.a = dlogits, .b = weight_->value(), .c = dhidden});
    if (dweight.defined()) gemm({.a = dlogits, .b = hidden, .c = dweight, .transpose_a = true, .beta = beta});
  }

 private:
  std::unique_ptr<HeadGemms> gemms_;
  float factor_, cap_;
  std::optional<autograd::Weight::Acquired> weight_;  // without `gemms_`
  Tensor capped_;                                     // logits of the latest chunk, in the dtype of hidden
};

}  // namespace

std::unique_ptr<HeadGemms> with_logits_form(std::unique_ptr<HeadGemms> gemms, const StreamSpec& spec,
                                            const autograd::Weight& weight) {
  const auto scale = static_cast<float>(spec.logits_scale), cap = static_cast<float>(spec.logits_soft_cap);
  if (scale == 1.0f && cap == 0.0f) return gemms;
  return std::make_unique<FormedGemms>(std::move(gemms), scale, cap, weight);
}

}  // namespace quench::nn
