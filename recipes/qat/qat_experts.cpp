#include "recipes/qat/qat_experts.h"

#include <array>

#include "core/ops/experts/grouped_gemm.h"
#include "recipes/emulated/expert_input.h"

namespace quench::recipes {
namespace {

using autograd::Gradient;
using autograd::Saved;
using autograd::Tape;
using autograd::TokenPermutation;
using autograd::Variable;
using autograd::Weight;

class QatExperts final : public nn::ExpertKernel {
 public:
  QatExperts(const QatScheme& scheme, bool keep_weight)
      : scheme_(scheme), weight_(std::make_shared<FakeWeight>(scheme.weight, keep_weight)) {}

  [[nodiscard]] std::string_view name() const override { return scheme_.name; }
  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& parameter,
                               const TokenPermutation& rows) const override {
    return run(x, parameter, rows, false);
  }
  [[nodiscard]] Variable apply_to_tokens(const Variable& x, const nn::Parameter& parameter,
                                         const TokenPermutation& rows) const override {
    return run(x, parameter, rows, true);
  }

 private:
  struct Backward;
  [[nodiscard]] Variable run(const Variable& x, const nn::Parameter& parameter, const TokenPermutation& rows,
                             bool tokens) const;

  QatScheme scheme_;
  // Shared with backward functions, which may outlive this layer's kernel.
  std::shared_ptr<FakeWeight> weight_;
};

struct QatExperts::Backward {
  QatScheme scheme;
  std::shared_ptr<FakeWeight> weight;
  const nn::Parameter* parameter;
  Shape of_each;  // [E,N,K]
  TokenPermutation rows;
  bool tokens;
  Saved saved_x;
  Tensor input_mask;
  std::shared_ptr<Gradient> dx, dw, dy_of;

  void operator()() const {
    const MemoryScope workspace(MemoryCategory::workspace);
    const Tensor dy = dy_of->value();
    const FakeQuantized w = weight->get(*parameter, dw != nullptr, of_each[0]);
    if (dw) weight_gradient(dy, w.mask);
    if (dx) input_gradient(dy, w.values);
  }

  void input_gradient(const Tensor& dy, const Tensor& w) const {
    const Tensor gradient =
        rows_or_sums(rows_of(dy, rows, false), of_each[2], rows, tokens, [&](const Tensor& of_rows) {
          grouped_gemm(GroupedGemmArgs{.a = dy, .b = w.view(of_each), .ends = rows.ends, .c = of_rows});
        });
    stop_gradient(gradient, input_mask);
    dx->contribute(gradient);
  }

  // Deferred if the producer recomputes x.
  void weight_gradient(const Tensor& dy, const Tensor& mask) const {
    dw->begin_use();
    const auto finish = [dw = dw, dy, mask, rows = rows, tokens = tokens, of_each = of_each,
                         format = scheme.input](const Tensor& recomputed_x) {
      const MemoryScope workspace(MemoryCategory::workspace);
      const Tensor x = fake_quantize(recomputed_x, format, false).values;
      // Earlier micro-batches of the step had the same mask.
      finish_weight_gradient(
          *dw, of_each,
          [&](const Tensor& c, float beta) {
            grouped_wgrad(GroupedWgradArgs{.a = dy,
                                           .b = copied(rows_of(x, rows, tokens)),
                                           .ends = rows.ends,
                                           .c = c,
                                           .beta = beta,
                                           .alignment = rows.alignment});
          },
          mask);
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }
};

Variable QatExperts::run(const Variable& x, const nn::Parameter& parameter, const TokenPermutation& rows,
                         bool tokens) const {
  const Weight weight = parameter.weight();
  const Tensor in = x.value();
  const Shape of_each = expert_matrices(name(), in, weight, rows.ends.size(0));
  const MemoryScope scope(MemoryCategory::activations);
  const std::int64_t out_rows = rows_of(in, rows, tokens).rows();
  Variable y(Tensor::empty({out_rows, of_each[1]}, in.dtype(), in.device()));
  FakeQuantized input = fake_quantize(in, scheme_.input, Tape::current() != nullptr && x.requires_grad());
  {
    const MemoryScope workspace(MemoryCategory::workspace);
    grouped_gemm(GroupedGemmArgs{.a = copied(rows_of(input.values, rows, tokens)),
                                 .b = weight_->get(parameter, false, of_each[0]).values.view(of_each),
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
