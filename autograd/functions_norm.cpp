#include <array>

#include "autograd/functions.h"
#include "core/ops/elementwise.h"
#include "core/ops/norm.h"

namespace quench::autograd {
namespace {

// `dsum` if it is the caller's alone, else a new tensor.
Tensor norm_dx_buffer(const Tensor& like, const Tensor& dsum) {
  return dsum.defined() && dsum.is_exclusive() ? dsum : Tensor::empty_like(like);
}

// Recomputes `y` in the same pass if deferred uses are waiting.
void norm_backward(const Tensor& dy, const Tensor& x, const Weight& weight, const Tensor& rstd, Tensor dsum,
                   const Tensor& dx, const RmsNormForm& form, RecomputeHandle* handle = nullptr,
                   const QuantOutputs& quant_outputs = {}) {
  const Weight::Acquired values = weight.acquire();
  RmsNormBackwardArgs args{.dy = dy,
                           .x = x,
                           .weight = values.value(),
                           .rstd = rstd,
                           .dsum = std::move(dsum),
                           .dx = dx,
                           .weight_offset = form.weight_offset,
                           .f32_weight = form.f32_weight,
                           .quant_outputs = quant_outputs};
  if (weight.requires_grad()) {
    const GradientTarget into = weight.gradient()->target();
    args.dweight = into.tensor;
    args.accumulate_dweight = into.accumulate;
  }
  if (handle != nullptr && handle->has_uses()) args.y = Tensor::empty_like(x);
  rms_norm_backward(args);
  if (handle != nullptr) handle->run_uses(std::move(args.y));
}

// Norms write no transposed codes; transposing the codes is cheaper than another pass over the values.
QuantOutputRequest natural_only(QuantOutputRequest wanted) {
  wanted.transposed_codes = false;
  return wanted;
}

// A value left out on a tape must be recomputable: its consumer may run again.
bool is_value_needed(const QuantOutputRequest& wanted, const QuantOutputs& outputs, const Variable& x,
                     const Weight& weight) {
  const bool recomputable = Tape::current() == nullptr || x.requires_grad() || weight.requires_grad();
  return wanted.value_needed || !outputs.has_codes() || !recomputable;
}

std::function<Tensor()> recompute_norm(const Tensor& x, const Weight& weight, const RmsNormForm& form) {
  return [x, weight, form] {
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor y = Tensor::empty_like(x);
    quench::rms_norm({.x = x,
                      .weight = weight.acquire().value(),
                      .eps = form.eps,
                      .weight_offset = form.weight_offset,
                      .f32_weight = form.f32_weight,
                      .y = y,
                      .rstd = Tensor::empty({x.size(0)}, DType::f32, x.device())});
    return y;
  };
}

}  // namespace

Variable rms_norm(const Variable& x, const Weight& weight, const RmsNormForm& form, const QuantOutputRequest& wanted) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = x.value();
  const Tensor rstd = Tensor::empty({in.size(0)}, DType::f32, in.device());
  const QuantOutputs quant_outputs = make_coded_outputs(natural_only(wanted), in.shape(), in);
  Tensor result;
  if (is_value_needed(wanted, quant_outputs, x, weight)) result = Tensor::empty_like(in);
  quench::rms_norm({.x = in,
                    .weight = weight.acquire().value(),
                    .eps = form.eps,
                    .weight_offset = form.weight_offset,
                    .f32_weight = form.f32_weight,
                    .y = result,
                    .rstd = rstd,
                    .quant_outputs = quant_outputs});
  Variable y(FusedValue::produced(result, in.shape(), in, quant_outputs));
  Tape::record("rms_norm", {x, weight}, std::array{&y}, [&] {
    const auto handle = std::make_shared<RecomputeHandle>(recompute_norm(in, weight, form), true);
    y.set_recompute(handle);
    return [in, handle, weight, form, rstd, dx = x.gradient(), dy = y.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor into = Tensor::empty_like(in);
      const QuantOutputs outputs = dx ? make_quant_outputs(dx->request_to_producer(), into) : QuantOutputs{};
      norm_backward(dy->value(), in, weight, rstd, Tensor(), into, form, handle.get(), outputs);
      if (dx) dx->contribute({into, outputs});
    };
  });
  return y;
}

std::pair<Variable, Variable> add_rms_norm(const Variable& residual, const Variable& delta, const Weight& weight,
                                           const RmsNormForm& form, const QuantOutputRequest& wanted) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = delta.value();
  Variable sum(Tensor::empty_like(in));
  const Tensor rstd = Tensor::empty({in.size(0)}, DType::f32, in.device());
  const QuantOutputs quant_outputs = make_coded_outputs(natural_only(wanted), in.shape(), in);
  Tensor result;
  if (is_value_needed(wanted, quant_outputs, residual, weight) && is_value_needed(wanted, quant_outputs, delta, weight))
    result = Tensor::empty_like(in);
  quench::rms_norm({.x = in,
                    .residual = residual.value(),
                    .weight = weight.acquire().value(),
                    .eps = form.eps,
                    .weight_offset = form.weight_offset,
                    .f32_weight = form.f32_weight,
                    .y = result,
                    .sum = sum.value(),
                    .rstd = rstd,
                    .quant_outputs = quant_outputs});
  Variable y(FusedValue::produced(result, in.shape(), in, quant_outputs));
  Tape::record("add_rms_norm", {residual, delta, weight}, std::array{&sum, &y}, [&] {
    const auto handle = std::make_shared<RecomputeHandle>(recompute_norm(sum.value(), weight, form), true);
    y.set_recompute(handle);
    return [x = sum.value(), handle, weight, form, rstd, dresidual = residual.gradient(), ddelta = delta.gradient(),
            dsum_of = sum.gradient(), dy_of = y.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dsum = dsum_of->take_value();
      Tensor dx;
      QuantOutputs outputs;
      if (!dy_of->has_value()) {
        dx = dsum;
      } else {
        dx = norm_dx_buffer(x, dsum);
        if (ddelta) outputs = make_quant_outputs(ddelta->request_to_producer(), dx);
        norm_backward(dy_of->value(), x, weight, rstd, dsum, dx, form, handle.get(), outputs);
      }
      if (dresidual) dresidual->contribute(dx);
      if (ddelta) ddelta->contribute({dx, outputs});
    };
  });
  return {sum, y};
}

Variable qk_norm(const Variable& qkv, const Weight& q_weight, const Weight& k_weight, const QkvLayout& layout,
                 const RmsNormForm& form) {
  const MemoryScope scope(MemoryCategory::activations);
  const Tensor in = qkv.value();
  Variable out(Tensor::empty_like(in));
  const bool whole = q_weight.shape()[0] != layout.head_dim;
  const auto q_of = [layout, whole](const Tensor& t) {
    return whole ? t.narrow(1, 0, layout.heads * layout.head_dim) : query_view(t, layout);
  };
  const auto k_of = [layout, whole](const Tensor& t) {
    return whole ? t.narrow(1, layout.heads * layout.head_dim, layout.kv_heads * layout.head_dim) : key_view(t, layout);
  };
  const auto rows_of = [&](std::int64_t heads) { return whole ? Shape{in.size(0)} : Shape{in.size(0), heads}; };
  const Tensor q_rstd = Tensor::empty(rows_of(layout.heads), DType::f32, in.device());
  const Tensor k_rstd = Tensor::empty(rows_of(layout.kv_heads), DType::f32, in.device());
  const auto value_columns = [layout](const Tensor& t) {
    const std::int64_t width = layout.kv_heads * layout.head_dim;
    return t.narrow(1, t.size(1) - width, width);
  };
  quench::rms_norm({.x = q_of(in),
                    .weight = q_weight.acquire().value(),
                    .eps = form.eps,
                    .weight_offset = form.weight_offset,
                    .f32_weight = form.f32_weight,
                    .y = q_of(out.value()),
                    .rstd = q_rstd});
  quench::rms_norm({.x = k_of(in),
                    .weight = k_weight.acquire().value(),
                    .eps = form.eps,
                    .weight_offset = form.weight_offset,
                    .f32_weight = form.f32_weight,
                    .y = k_of(out.value()),
                    .rstd = k_rstd});
  copy_rows({value_columns(in), value_columns(out.value())});

  Tape::record("qk_norm", {qkv, q_weight, k_weight}, std::array{&out}, [&] {
    return [in, value_columns, q_of, k_of, form, q_weight, k_weight, q_rstd, k_rstd, dqkv = qkv.gradient(),
            dout_of = out.gradient()] {
      const MemoryScope backward_scope(MemoryCategory::activations);
      const Tensor dout = dout_of->value();
      const Tensor dx = Tensor::empty_like(in);
      norm_backward(q_of(dout), q_of(in), q_weight, q_rstd, Tensor(), q_of(dx), form);
      norm_backward(k_of(dout), k_of(in), k_weight, k_rstd, Tensor(), k_of(dx), form);
      copy_rows({value_columns(dout), value_columns(dx)});
      if (dqkv) dqkv->contribute(dx);
    };
  });
  return out;
}

}  // namespace quench::autograd
