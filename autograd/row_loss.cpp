#include "autograd/row_loss.h"

#include <array>
#include <optional>

#include "autograd/tape.h"
#include "core/ops/elementwise.h"

namespace quench::autograd {
namespace {

// Cross-entropy with a gradient times one factor per row.
class WeightedCrossEntropy final : public LogitsLoss {
 public:
  explicit WeightedCrossEntropy(Tensor factors) : factors_(std::move(factors)) {}
  void run(const CrossEntropyArgs& chunk, std::int64_t first_row) override {
    cross_entropy(chunk);
    if (chunk.dlogits.defined())
      scale_rows({.x = chunk.dlogits, .factors = factors_.narrow(0, first_row, chunk.dlogits.size(0))});
  }

 private:
  Tensor factors_;  // f32 [N]
};

}  // namespace

Variable lm_head_row_loss(const Variable& hidden, const Weight& weight, const Tensor& labels,
                          const RowDerivatives& derivatives, const LmHeadLossOptions& options, HeadGemms* gemms) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor x = hidden.value();
  const bool recorded = Tape::current() != nullptr;
  const bool trains_weight = recorded && weight.requires_grad();
  const bool trains_hidden = recorded && hidden.requires_grad();
  // As lm_head_loss(): other GEMMs have acquired the weight.
  const std::optional<Weight::Acquired> values = gemms == nullptr ? std::optional(weight.acquire()) : std::nullopt;
  LmHeadLossArgs args{
      .hidden = x, .weight = values ? values->value() : unstored_value(weight.shape(), x), .labels = labels};
  args.losses = Tensor::empty({x.size(0)}, DType::f32, x.device());
  args.options = options;
  args.gemms = gemms;
  if (trains_hidden) args.dhidden = Tensor::empty_like(x);
  const Tensor dhidden = args.dhidden;
  // A frozen head needs one pass: rows of dhidden are scaled afterwards.
  if (trains_weight) args.dhidden = Tensor();
  lm_head_loss(args);

  Variable loss(Tensor::empty({1}, DType::f32, x.device()));
  const Tensor factors = derivatives(args.losses, loss.value());
  if (trains_weight) {
    WeightedCrossEntropy weighted(factors);
    const GradientTarget into = weight.gradient()->target();
    args.dhidden = dhidden;
    args.dweight = into.tensor;
    args.accumulate_dweight = into.accumulate;
    args.loss = &weighted;
    lm_head_loss(args);
  } else if (trains_hidden) {
    scale_rows({.x = dhidden, .factors = factors});
  }
  Tape::record("lm_head_row_loss", {hidden, weight}, std::array{&loss}, [&] {
    return [dhidden, gradient = hidden.gradient()] {
      if (gradient) gradient->contribute(dhidden);
    };
  });
  return loss;
}

}  // namespace quench::autograd
