#include "recipes/float8/experts.h"

#include <array>

#include "core/ops/experts/grouped_float8.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/quantize.h"
#include "recipes/emulated/expert_input.h"
#include "recipes/float8/weight.h"

namespace quench::recipes {
namespace {

using autograd::Gradient;
using autograd::Saved;
using autograd::Tape;
using autograd::TokenPermutation;
using autograd::Variable;
using autograd::Weight;

constexpr Float8Operand kByRow{ElementFormat::e4m3, Float8Scaling::row};

struct Operand {
  QuantTensor rows;
  Tensor column_scales;  // f32 [E,C]
};

Operand quantized(const GroupRows& rows, bool codes_wanted, bool columns_wanted) {
  Operand result;
  Tensor amax;
  if (columns_wanted) amax = Tensor::zeros({rows.ends.size(0), rows.x.size(1)}, DType::f32, rows.x.device());
  // amax is computed in the quantization pass.
  if (codes_wanted || columns_wanted) result.rows = quantize_group_rows(rows, true, amax);
  if (columns_wanted) result.column_scales = float8_scale(amax, ElementFormat::e4m3, true);
  return result;
}

QuantTensor flat(const QuantTensor& x) {
  const Shape shape{x.shape()[0] * x.shape()[1], x.shape()[2]};
  return {x.format(), shape, x.source_dtype(), x.payload().view(shape), x.scales().view({shape[0], 1})};
}

// Materialises permuted rows: only in armed steps.
void record_rows(const LayerHealth& health, LayerOperand operand, const GroupRows& rows, const QuantTensor& codes) {
  if (!health.armed()) return;
  const Tensor x = copied(rows);
  health.record(operand, x, codes, x.numel());
}

class Float8Experts final : public nn::ExpertKernel {
 public:
  explicit Float8Experts(const Float8ExpertOptions& options)
      : options_(options),
        weight_(std::make_shared<Float8Weight>(
            Float8Uses{.rowwise = options.float8.forward ? std::optional(kByRow) : std::nullopt,
                       .columnwise = options.float8.dgrad ? std::optional(kByRow) : std::nullopt,
                       .power_of_two_scales = true},
            options.keep_weights)) {}

  [[nodiscard]] std::string_view name() const override { return "float8_rowwise"; }
  [[nodiscard]] std::int64_t alignment() const override { return kFloat8GroupAlignment; }
  [[nodiscard]] Variable apply(const Variable& x, const nn::Parameter& parameter,
                               const TokenPermutation& rows) const override {
    return run(x, parameter, rows, false, false);
  }
  [[nodiscard]] Variable apply_to_tokens(const Variable& x, const nn::Parameter& parameter,
                                         const TokenPermutation& rows) const override {
    return run(x, parameter, rows, true, false);
  }
  [[nodiscard]] Variable apply_and_sum(const Variable& x, const nn::Parameter& parameter,
                                       const TokenPermutation& rows) const override {
    return run(x, parameter, rows, false, true);
  }

 private:
  struct Backward;
  // `tokens`: x is in token order; `sums`: the output is unpermuted.
  [[nodiscard]] Variable run(const Variable& x, const nn::Parameter& parameter, const TokenPermutation& rows,
                             bool tokens, bool sums) const;

  Float8ExpertOptions options_;
  std::shared_ptr<Float8Weight> weight_;
};

struct Float8Experts::Backward {
  Float8ExpertOptions options;
  std::shared_ptr<Float8Weight> codes;
  const nn::Parameter* parameter;
  Weight weight;
  Shape of_each;  // [E,N,K]
  TokenPermutation rows;
  bool tokens, sums;
  Saved saved_x;           // if x_columns has no quantized values
  GroupColumns x_columns;  // for float8 wgrad; only scales if saved_x is used
  std::shared_ptr<Gradient> dx, dw, dy_of;

  void operator()() const {
    const MemoryScope workspace(MemoryCategory::workspace);
    const GroupRows of_dy = rows_of(dy_of->value(), rows, sums);
    const bool dgrad = dx != nullptr && options.float8.dgrad, wgrad = dw != nullptr && options.float8.wgrad;
    const Operand operand = quantized(of_dy, dgrad, wgrad);
    if (dgrad) record_rows(options.health, LayerOperand::output_gradient, of_dy, operand.rows);
    if (dw) weight_gradient(of_dy, wgrad ? quantize_group_columns(of_dy, operand.column_scales) : GroupColumns{});
    if (dx) input_gradient(of_dy, operand.rows);
  }

  void input_gradient(const GroupRows& dy, const QuantTensor& dy_codes) const {
    dx->contribute(rows_or_sums(dy, of_each[2], rows, tokens, [&](const Tensor& of_rows) {
      const Weight::Acquired use = weight.acquire();
      const Tensor value = use.value().view(of_each);
      if (options.float8.dgrad)
        grouped_gemm(GroupedFloat8GemmArgs{.a = dy_codes,
                                           .b = codes->columnwise(*parameter, value),
                                           .ends = rows.ends,
                                           .c = of_rows,
                                           .fast_accumulation = options.fast_accumulation});
      else
        grouped_gemm(GroupedGemmArgs{.a = copied(dy), .b = value, .ends = rows.ends, .c = of_rows});
    }));
  }

  // Deferred if the producer recomputes x; captures quantized dy.
  void weight_gradient(const GroupRows& of_dy, const GroupColumns& dy_codes) const {
    dw->begin_use();
    const auto finish = [dw = dw, dy = dy_codes.defined() ? Tensor() : copied(of_dy), dy_codes, rows = rows,
                         tokens = tokens, x = x_columns, of_each = of_each,
                         fast = options.fast_accumulation](const Tensor& recomputed_x) {
      const MemoryScope workspace(MemoryCategory::workspace);
      const GroupRows of_x = rows_of(recomputed_x, rows, tokens);
      finish_weight_gradient(*dw, of_each, [&](const Tensor& c, float beta) {
        if (dy_codes.defined())
          grouped_wgrad(GroupedFloat8WgradArgs{.a = dy_codes,
                                               .b = x.defined() ? x : quantize_group_columns(of_x, x.scales),
                                               .ends = rows.ends,
                                               .c = c,
                                               .beta = beta,
                                               .fast_accumulation = fast});
        else
          grouped_wgrad(GroupedWgradArgs{
              .a = dy, .b = copied(of_x), .ends = rows.ends, .c = c, .beta = beta, .alignment = rows.alignment});
      });
    };
    if (x_columns.defined()) return finish(Tensor());
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }
};

Variable Float8Experts::run(const Variable& x, const nn::Parameter& parameter, const TokenPermutation& rows,
                            bool tokens, bool sums) const {
  const Weight weight = parameter.weight();
  const Tensor in = x.value();
  const Shape of_each = expert_matrices(name(), in, weight, rows.ends.size(0));
  const GroupRows of_x = rows_of(in, rows, tokens);
  const MemoryScope scope(MemoryCategory::activations);
  const bool training = Tape::current() != nullptr && weight.requires_grad(),
             recomputed = is_recomputed_by_producer(x, tokens);
  Tensor x_scales;
  Variable y(rows_or_sums(of_x, of_each[1], rows, sums, [&](const Tensor& of_rows) {
    const Operand operand = quantized(of_x, options_.float8.forward, training && options_.float8.wgrad);
    x_scales = operand.column_scales;
    const MemoryScope workspace(MemoryCategory::workspace);
    const Weight::Acquired use = weight.acquire();
    const Tensor value = use.value().view(of_each);
    if (options_.float8.forward) {
      record_rows(options_.health, LayerOperand::input, of_x, operand.rows);
      const bool backward_follows = Tape::current() != nullptr && x.requires_grad();
      const QuantTensor weight_codes = weight_->rowwise(parameter, value, backward_follows);
      options_.health.record(LayerOperand::weight, use.value(), flat(weight_codes), value.numel());
      grouped_gemm(GroupedFloat8GemmArgs{.a = operand.rows,
                                         .b = weight_codes,
                                         .ends = rows.ends,
                                         .c = of_rows,
                                         .fast_accumulation = options_.fast_accumulation});
    } else {
      grouped_gemm(
          GroupedGemmArgs{.a = copied(of_x), .b = value, .ends = rows.ends, .c = of_rows, .transpose_b = true});
    }
  }));
  Tape::record(name(), {x, weight}, std::array{&y}, [&]() -> std::function<void()> {
    GroupColumns columns{{}, x_scales};
    if (x_scales.defined() && !recomputed && codes_save_memory(x, of_x))
      columns = quantize_group_columns(of_x, x_scales);
    const bool needs_x = weight.requires_grad() && !columns.defined();
    return Backward{options_,    weight_,      &parameter,
                    weight,      of_each,      rows,
                    tokens,      sums,         needs_x ? saved_input(x, recomputed) : Saved(),
                    columns,     x.gradient(), weight.gradient(),
                    y.gradient()};
  });
  return y;
}

}  // namespace

std::shared_ptr<const nn::ExpertKernel> float8_experts(const Float8ExpertOptions& options) {
  return std::make_shared<Float8Experts>(options);
}

}  // namespace quench::recipes
