#include "recipes/emulated/layers.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/ops/elementwise.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/gemm.h"
#include "recipes/emulated/expert_input.h"
#include "recipes/pad_and_bias.h"

namespace quench::recipes {
namespace {

using autograd::GradientTarget;
using autograd::Saved;
using autograd::Tape;
using autograd::TokenPermutation;
using autograd::Variable;
using autograd::Weight;

struct Emulated {
  std::shared_ptr<const OperandEmulation> rounding;
  EmulatedGemms gemms;
  LayerHealth health;

  [[nodiscard]] Tensor rowwise(const Tensor& x, bool wanted, LayerOperand operand) const {
    return wanted ? rounding->rowwise(x, recorder(operand)) : x;
  }
  [[nodiscard]] CodesSeen recorder(LayerOperand operand) const {
    return [this, operand](const Tensor& x, const QuantTensor& codes) { health.record(operand, x, codes, x.numel()); };
  }
};

float beta_of(const GradientTarget& into) {
  return into.accumulate ? 1.0f : 0.0f;
}

class EmulatedLinear final : public nn::LinearKernel {
 public:
  explicit EmulatedLinear(Emulated rounded) : r_(std::move(rounded)) {}
  [[nodiscard]] std::string_view name() const override { return r_.rounding->name(); }

 private:
  [[nodiscard]] nn::LinearOutput do_run(const nn::LinearCall& call, const nn::Parameter& parameter,
                                        const Weight& bias) const override {
    const Variable& x = call.x;
    const Weight weight = parameter.weight();
    const Tensor in = x.value();
    QUENCH_CHECK(in.rank() == 2 && weight.shape().rank() == 2 && in.size(1) == weight.shape()[1],
                 "{} linear: x is {}, weight is {}; expected [M,K] and [N,K]", name(), in.describe(),
                 weight.describe());
    const MemoryScope scope(MemoryCategory::activations);
    Variable y(Tensor::empty({in.size(0), weight.shape()[0]}, in.dtype(), in.device()));
    {
      const MemoryScope workspace(MemoryCategory::workspace);
      const Weight::Acquired use = weight.acquire();
      gemm({.a = r_.rowwise(in, r_.gemms.forward, LayerOperand::input),
            .b = r_.rowwise(use.value(), r_.gemms.forward, LayerOperand::weight),
            .c = y.value(),
            .transpose_b = true,
            .bias = bias.acquire().value()});
    }
    Tape::record(name(), {x, weight, bias}, std::array{&y}, [&] {
      return [r = r_, saved_x = weight.requires_grad() ? Saved(x) : Saved(), weight, dx = x.gradient(),
              dw = weight.gradient(), db = bias.gradient(), dy_of = y.gradient()] {
        const MemoryScope workspace(MemoryCategory::workspace);
        const Tensor dy = dy_of->value();
        if (dw) weight_gradient(r, dy, saved_x, dw);
        if (db) {
          const GradientTarget into = db->target();
          column_sum({.x = dy, .out = into.tensor, .accumulate = into.accumulate});
        }
        if (!dx) return;
        const Tensor left = r.rowwise(dy, r.gemms.dgrad, LayerOperand::output_gradient);
        const Weight::Acquired use = weight.acquire();
        const Shape one{1, weight.shape()[0], weight.shape()[1]};
        const Tensor right =
            r.gemms.dgrad ? r.rounding->columnwise(use.value().view(one)).view(weight.shape()) : use.value();
        const GradientTarget into = dx->target();
        gemm({.a = left, .b = right, .c = into.tensor, .beta = beta_of(into)});
      };
    });
    return {y};
  }

  static void weight_gradient(const Emulated& r, const Tensor& dy, const Saved& saved_x,
                              const std::shared_ptr<autograd::Gradient>& dw) {
    dw->begin_use();
    const auto round = [r](const Tensor& t) {
      if (!r.gemms.wgrad) return t;
      const std::int64_t rows = t.size(0), unit = r.rounding->alignment();
      const Tensor whole = zero_padded(t, (rows + unit - 1) / unit * unit, t.size(1));
      const std::array<std::int32_t, 1> end{static_cast<std::int32_t>(whole.size(0))};
      return r.rounding->grouped_columnwise(whole, Tensor::from_values<std::int32_t>({1}, end).to(t.device()))
          .narrow(0, 0, rows);
    };
    const auto finish = [dw, round, left = round(dy)](const Tensor& recomputed_x) {
      const MemoryScope workspace(MemoryCategory::workspace);
      const Tensor right = round(recomputed_x);
      const GradientTarget into = dw->target();
      gemm({.a = left, .b = right, .c = into.tensor, .transpose_a = true, .beta = beta_of(into)});
      dw->end_use();
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }

  Emulated r_;
};

class EmulatedExperts final : public nn::ExpertKernel {
 public:
  explicit EmulatedExperts(Emulated rounded) : r_(std::move(rounded)) {}
  [[nodiscard]] std::string_view name() const override { return r_.rounding->name(); }
  [[nodiscard]] std::int64_t alignment() const override { return r_.rounding->alignment(); }
  [[nodiscard]] autograd::QuantOutputRequest input_quant_request() const override {
    return {.substitution = r_.gemms.forward ? r_.rounding->rowwise_request() : nullptr};
  }

  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& parameter,
                               const TokenPermutation& rows) const override {
    return run(x, parameter.weight(), {rows, false, false});
  }
  [[nodiscard]] Variable apply_to_tokens(const Variable& x, const nn::Parameter& parameter,
                                         const TokenPermutation& rows) const override {
    return run(x, parameter.weight(), {rows, true, false});
  }
  [[nodiscard]] Variable apply_and_sum(const Variable& x, const nn::Parameter& parameter,
                                       const TokenPermutation& rows) const override {
    return run(x, parameter.weight(), {rows, false, true});
  }

 private:
  struct Ends {
    TokenPermutation rows;
    bool tokens;  // x is in token order
    bool sums;    // the output is unpermuted

    [[nodiscard]] GroupRows of_x(const Tensor& x) const { return rows_of(x, rows, tokens); }
    [[nodiscard]] GroupRows of_dy(const Tensor& dy) const { return rows_of(dy, rows, sums); }
  };

  struct Backward {
    Emulated r;
    Weight weight;
    Shape of_each;  // [E,N,K]
    Ends ends;
    Saved saved_x;                   // if kept_x is empty
    std::function<Tensor()> kept_x;  // operand of wgrad
    std::shared_ptr<autograd::Gradient> dx, dw, dy_of;

    void operator()() const {
      const MemoryScope workspace(MemoryCategory::workspace);
      const Tensor dy = dy_of->take_value();
      const bool alone = dy.is_exclusive();
      const GroupRows of_dy = ends.of_dy(dy);
      const WantedForms wanted{.rowwise = dx && r.gemms.dgrad,
                               .grouped_columnwise = dw && r.gemms.wgrad,
                               .may_overwrite = alone && (!dw || r.gemms.wgrad)};
      RowForms forms = r.rounding->forms(of_dy, wanted, r.recorder(LayerOperand::output_gradient));
      if (dw) weight_gradient(wanted.grouped_columnwise ? std::exchange(forms.grouped_columnwise, {}) : copied(of_dy));
      if (!dx) return;
      dx->contribute(rows_or_sums(of_dy, of_each[2], ends.rows, ends.tokens, [&](const Tensor& of_rows) {
        const Weight::Acquired use = weight.acquire();
        const Tensor w = use.value().view(of_each);
        grouped_gemm({.a = wanted.rowwise ? forms.rowwise : copied(of_dy),
                      .b = r.gemms.dgrad ? r.rounding->columnwise(w) : w,
                      .ends = ends.rows.ends,
                      .c = of_rows});
      }));
    }

    void weight_gradient(const Tensor& left) const {
      dw->begin_use();
      const auto multiply = [dw = dw, rows = ends.rows, of_each = of_each, left](const Tensor& right) {
        finish_weight_gradient(*dw, of_each, [&](const Tensor& c, float beta) {
          grouped_wgrad({.a = left, .b = right, .ends = rows.ends, .c = c, .beta = beta, .alignment = rows.alignment});
        });
      };
      if (kept_x) return multiply(kept_x());
      const auto finish = [r = r, ends = ends, multiply](const Tensor& recomputed_x) {
        const MemoryScope scope(MemoryCategory::workspace);
        const GroupRows x = ends.of_x(recomputed_x);
        multiply(r.gemms.wgrad ? r.rounding->forms(x, {.grouped_columnwise = true}, {}).grouped_columnwise : copied(x));
      };
      if (!saved_x.defer(finish)) finish(saved_x.get());
    }
  };

  [[nodiscard]] Tensor forward_operand(const GroupRows& x) const {
    if (!r_.gemms.forward) return copied(x);
    return r_.rounding->forms(x, {.rowwise = true}, r_.recorder(LayerOperand::input)).rowwise;
  }

  [[nodiscard]] Variable run(const Variable& x, const Weight& weight, const Ends& ends) const {
    const Tensor rounded = x.fused().answer_to(input_quant_request().substitution);
    const Tensor in = rounded.defined() ? rounded : x.value();
    const Shape of_each = expert_matrices(name(), in, weight, ends.rows.ends.size(0));
    const GroupRows of_x = ends.of_x(in);
    const MemoryScope scope(MemoryCategory::activations);
    const bool recomputed = is_recomputed_by_producer(x, ends.tokens);
    std::function<Tensor()> kept_x;
    if (Tape::current() != nullptr && weight.requires_grad() && r_.gemms.wgrad && !recomputed &&
        codes_save_memory(x, of_x)) {
      const Tensor copies = [&] {
        const MemoryScope workspace(MemoryCategory::workspace);
        return copied(of_x);
      }();
      kept_x = r_.rounding->saved_grouped_columnwise(copies, ends.rows.ends);
    }
    Variable y(rows_or_sums(of_x, of_each[1], ends.rows, ends.sums, [&](const Tensor& of_rows) {
      const MemoryScope workspace(MemoryCategory::workspace);
      const Weight::Acquired use = weight.acquire();
      grouped_gemm({.a = rounded.defined() ? rounded : forward_operand(of_x),
                    .b = r_.rowwise(use.value(), r_.gemms.forward, LayerOperand::weight).view(of_each),
                    .ends = ends.rows.ends,
                    .c = of_rows,
                    .transpose_b = true});
    }));
    Tape::record(name(), {x, weight}, std::array{&y}, [&]() -> std::function<void()> {
      const bool needs_x = weight.requires_grad() && !kept_x;
      return Backward{
          r_,     weight,       of_each,           ends,        needs_x ? saved_input(x, recomputed) : Saved(),
          kept_x, x.gradient(), weight.gradient(), y.gradient()};
    });
    return y;
  }

  Emulated r_;
};

}  // namespace

EmulatedGemms EmulatedGemms::without(const std::vector<LinearGemm>& high_precision) {
  const auto rounds = [&](LinearGemm gemm) { return std::ranges::find(high_precision, gemm) == high_precision.end(); };
  return {rounds(LinearGemm::forward), rounds(LinearGemm::dgrad), rounds(LinearGemm::wgrad)};
}

std::shared_ptr<const nn::LinearKernel> emulated_linear(std::shared_ptr<const OperandEmulation> rounding,
                                                        EmulatedGemms gemms, LayerHealth health) {
  return std::make_shared<EmulatedLinear>(Emulated{std::move(rounding), gemms, std::move(health)});
}

std::shared_ptr<const nn::ExpertKernel> emulated_experts(std::shared_ptr<const OperandEmulation> rounding,
                                                         EmulatedGemms gemms, LayerHealth health) {
  return std::make_shared<EmulatedExperts>(Emulated{std::move(rounding), gemms, std::move(health)});
}

}  // namespace quench::recipes
