#include <array>
#include <optional>

#include "autograd/functions.h"
#include "core/ops/elementwise.h"
#include "core/ops/reduce_sum.h"

namespace quench::autograd {

Variable add_gradient(const Variable& x, const Tensor& gradient) {
  Variable out(x.value());
  Tape::record("add_gradient", {x}, std::array{&out}, [&] {
    return [gradient, dx = x.gradient(), dout = out.gradient()] {
      accumulate({dout->value(), gradient});
      dx->contribute(gradient);
    };
  });
  return out;
}

Variable join_losses(const Variable& loss, const Variable& other) {
  Variable out(loss.value());
  Tape::record("join_losses", {loss, other}, std::array{&out}, [&] {
    return [first = loss.gradient(), second = other.gradient(), dout = out.gradient()] {
      if (first) first->contribute(dout->value());
      if (second) second->contribute(dout->value());
    };
  });
  return out;
}

Variable lm_head_loss(const Variable& hidden, const Weight& weight, const Tensor& labels, float scale,
                      const LmHeadLossOptions& options, Tensor* losses, HeadGemms* gemms, LogitsLoss* rows) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor x = hidden.value();
  const bool training = Tape::current() != nullptr && (hidden.requires_grad() || weight.requires_grad());
  // Other GEMMs have acquired the weight themselves, and may release it within the loss.
  const std::optional<Weight::Acquired> values = gemms == nullptr ? std::optional(weight.acquire()) : std::nullopt;
  LmHeadLossArgs args{
      .hidden = x, .weight = values ? values->value() : unstored_value(weight.shape(), x), .labels = labels};
  args.losses = Tensor::empty({x.size(0)}, DType::f32, x.device());
  args.grad_scale = scale;
  args.options = options;
  args.gemms = gemms;
  args.loss = rows;
  if (training && hidden.requires_grad()) args.dhidden = Tensor::empty_like(x);
  if (training && weight.requires_grad()) {
    const GradientTarget into = weight.gradient()->target();
    args.dweight = into.tensor;
    args.accumulate_dweight = into.accumulate;
  }
  quench::lm_head_loss(args);

  Variable loss(Tensor::empty({1}, DType::f32, x.device()));
  reduce_sum({.x = args.losses, .out = loss.value(), .scale = scale});
  if (losses != nullptr) *losses = args.losses;
  Tape::record("lm_head_loss", {hidden, weight}, std::array{&loss}, [&] {
    return [dx = args.dhidden, dhidden = hidden.gradient()] {
      if (dhidden) dhidden->contribute(dx);
    };
  });
  return loss;
}

}  // namespace quench::autograd
