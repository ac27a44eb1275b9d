#include "recipes/qat/qat_experts.h"

#include <array>

#include "core/ops/experts/expert_rows.h"
#include "core/ops/experts/grouped_gemm.h"
#include "recipes/rounded/expert_input.h"

namespace quench::recipes {
namespace {

using autograd::ExpertRows;
using autograd::Gradient;
using autograd::GradientTarget;
using autograd::Saved;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

class QatExperts final : public nn::ExpertKernel {
 public:
  QatExperts(const QatScheme& scheme, bool keep_weight)
      : scheme_(scheme), weight_(std::make_shared<FakeWeight>(scheme.weight, keep_weight)) {}

  [[nodiscard]] std::string_view name() const override { return scheme_.name; }
  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& parameter,
                               const ExpertRows& rows) const override {
    return run(x, parameter, rows, false);
  }
  [[nodiscard]] Variable apply_to_tokens(const Variable& x, const nn::Parameter& parameter,
                                         const ExpertRows& rows) const override {
    return run(x, parameter, rows, true);
  }

 private:
  struct Backward;
  [[nodiscard]] Variable run(const Variable& x, const nn::Parameter& parameter, const ExpertRows& rows,
                             bool tokens) const;

  QatScheme scheme_;
  // Shared with the backward functions, which may outlive a layer whose recipe changes.
  std::shared_ptr<FakeWeight> weight_;
};

struct QatExperts::Backward {
  QatScheme scheme;
  std::shared_ptr<FakeWeight> weight;
  const nn::Parameter* parameter;
  Shape of_each;  // [E,N,K]
  ExpertRows rows;
  bool tokens;
  Saved saved_x;
  Tensor input_mask;
  Shape x_shape;
  std::shared_ptr<Gradient> dx, dw, dy_of;

  void operator()() const {
    const MemoryScope workspace(MemoryCategory::workspace);
    const Tensor dy = dy_of->value();
    const FakeQuantized w = weight->get(*parameter, dw != nullptr, of_each[0]);
    if (dw) weight_gradient(dy, w.mask);
    if (dx) input_gradient(dy, w.values.view(of_each));
  }

  void input_gradient(const Tensor& dy, const Tensor& w) const {
    const auto fresh = [&](const Shape& shape, MemoryCategory category) {
      const MemoryScope scope(category);
      return Tensor::empty(shape, dy.dtype(), dy.device());
    };
    Tensor own = fresh({dy.size(0), of_each[2]}, tokens ? MemoryCategory::workspace : MemoryCategory::activations);
    grouped_gemm(GroupedGemmArgs{.a = dy, .b = w, .ends = rows.ends, .c = own});
    if (tokens) {
      const Tensor of_tokens = fresh(x_shape, MemoryCategory::activations);
      sum_rows({.y = own, .rows = rows.rows, .out = of_tokens});
      own = of_tokens;
    }
    stop_gradient(own, input_mask);
    dx->contribute(own);
  }

  // Waits for x where it is made again anyway.
  void weight_gradient(const Tensor& dy, const Tensor& mask) const {
    dw->begin_use();
    const auto finish = [dw = dw, dy, mask, rows = rows, tokens = tokens, of_each = of_each,
                         format = scheme.input](const Tensor& x_again) {
      const MemoryScope workspace(MemoryCategory::workspace);
      const Tensor x = fake_quantize(x_again, format, false).values;
      const GradientTarget into = dw->target();
      grouped_wgrad(GroupedWgradArgs{.a = dy,
                                     .b = copied(rows_of(x, rows, tokens)),
                                     .ends = rows.ends,
                                     .c = into.tensor.view(of_each),
                                     .beta = into.accumulate ? 1.0f : 0.0f,
                                     .alignment = rows.alignment});
      // Of the micro-batches before this one too, which had the same mask.
      stop_gradient(into.tensor, mask);
      dw->end_use();
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }
};

Variable QatExperts::run(const Variable& x, const nn::Parameter& parameter, const ExpertRows& rows, bool tokens) const {
  const Weight weight = parameter.weight();
  const Tensor in = x.value();
  const std::int64_t experts = rows.ends.size(0);
  QUENCH_CHECK(in.rank() == 2 && in.size(1) == weight.shape()[1] && weight.shape()[0] % experts == 0,
               "{} experts: x is {}, weight is {}, of {} experts; expected [R,K] and [E*N,K]", name(), in.describe(),
               weight.describe(), experts);
  const Shape of_each{experts, weight.shape()[0] / experts, weight.shape()[1]};
  const MemoryScope scope(MemoryCategory::activations);
  const std::int64_t out_rows = rows_of(in, rows, tokens).rows();
  Variable y(Tensor::empty({out_rows, of_each[1]}, in.dtype(), in.device()));
  FakeQuantized input = fake_quantize(in, scheme_.input, Tape::current() != nullptr && x.requires_grad());
  {
    const MemoryScope workspace(MemoryCategory::workspace);
    grouped_gemm(GroupedGemmArgs{.a = copied(rows_of(input.values, rows, tokens)),
                                 .b = weight_->get(parameter, false, experts).values.view(of_each),
                                 .ends = rows.ends,
                                 .c = y.value(),
                                 .transpose_b = true});
  }
  input.values = Tensor();
  Tape::record(name(), {x, weight}, std::array{&y}, [&] {
    return Backward{scheme_,
                    weight_,
                    &parameter,
                    of_each,
                    rows,
                    tokens,
                    weight.requires_grad() ? Saved(x) : Saved(),
                    input.mask,
                    in.shape(),
                    x.gradient(),
                    weight.gradient(),
                    y.gradient()};
  });
  return y;
}

}  // namespace

std::shared_ptr<const nn::ExpertKernel> qat_experts(const QatScheme& scheme, bool keep_weight) {
  return std::make_shared<QatExperts>(scheme, keep_weight);
}

}  // namespace quench::recipes
