#include "train/probe/layer_bench.h"

#include <algorithm>

#include "autograd/functions.h"
#include "autograd/swiglu.h"
#include "core/number/random.h"
#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize.h"

namespace quench {
namespace {

using autograd::Gradient;
using autograd::Recompute;
using autograd::Tape;
using autograd::Variable;

// Non-leaf variable: its gradient is passed on, not accumulated.
Variable activation(const Tensor& value) {
  Variable variable(value);
  variable.set_gradient(std::make_shared<Gradient>(value.shape(), value.dtype(), value.device(), false));
  return variable;
}

}  // namespace

Tensor random_rows(const Shape& shape, DType dtype, float deviation, Device device) {
  constexpr std::int64_t kRows = 256;
  const std::int64_t rows = shape[0], columns = rows == 0 ? 0 : shape.numel() / rows, made = std::min(rows, kRows);
  const Tensor host = Tensor::empty({made, columns}, DType::f32);
  float* values = host.data<float>();
  const RandomKey key{static_cast<std::uint64_t>(columns), hash64("probe"), 0};
#pragma omp parallel for schedule(static)
  for (std::int64_t row = 0; row < made; ++row) {
    const std::span line(values + row * columns, static_cast<std::size_t>(columns));
    fill_random_normal(key, static_cast<std::uint64_t>(row * columns), line);
    for (float& value : line) value *= deviation;
  }
  Tensor tile = host;
  if (dtype != DType::f32) {
    tile = Tensor::empty({made, columns}, dtype);
    cast({host, tile});
  }
  tile = tile.to(device);
  const Tensor result = Tensor::empty({rows, columns}, dtype, device);
  for (std::int64_t row = 0; row < rows; row += made) {
    const std::int64_t count = std::min(made, rows - row);
    result.narrow(0, row, count).copy_from(tile.narrow(0, 0, count));
  }
  return result.view(shape);
}

LayerBench::LayerBench(const LayerKind& kind, const LayerWork& work, Device device) : kind_(kind), work_(work) {
  const nn::ParameterOptions options{.dtype = work.dtype, .grad_dtype = work.grad_dtype, .device = device};
  const std::int64_t in = kind.in_features, out = kind.out_features;
  const auto parameter = [&](const Shape& shape, float deviation) {
    nn::Parameter made = nn::make_parameter(shape, options);
    made.variable.set_value(random_rows(shape, work.dtype, deviation, device));
    return made;
  };
  const auto activations = [&](std::int64_t columns, float deviation) {
    return random_rows({work.tokens, columns}, work.dtype, deviation, device);
  };
  weight_ = parameter({out, in}, 0.02f);
  if (kind.has_bias) bias_ = parameter({out}, 0.02f);
  input_ = activations(kind.before == Neighbour::activation ? 2 * in : in, 1.0f);
  if (kind.before == Neighbour::norm) {
    residual_before_ = activations(in, 1.0f);
    norm_before_ = parameter({in}, 1.0f);
  }
  if (kind.after == Neighbour::norm) {
    residual_after_ = activations(out, 1.0f);
    norm_after_ = parameter({out}, 1.0f);
  }
  gradient_ = activations(kind.after == Neighbour::activation ? out / 2 : out, 1e-3f);
}

std::vector<Variable> LayerBench::forward(const nn::LinearKernel& kernel) const {
  const autograd::QuantOutputRequest wanted = kernel.input_quant_request(weight_);
  Variable x = activation(input_);
  if (kind_.before == Neighbour::attention) x.set_saved_by_producer();
  if (kind_.before == Neighbour::norm)
    x = autograd::add_rms_norm(activation(residual_before_), x, norm_before_.weight(), work_.eps, wanted).second;
  else if (kind_.before == Neighbour::activation)
    x = autograd::swiglu(x, wanted);
  const Variable y = kernel.apply(x, weight_, bias_.weight());
  if (kind_.after == Neighbour::activation) return {autograd::swiglu(y)};
  if (kind_.after == Neighbour::attention) return {y};
  // A recomputed layer ends here: its gradient arrives without the norm's fused outputs.
  if (work_.recompute == Recompute::full && kind_.before == Neighbour::activation) return {y};
  const auto [sum, normed] = autograd::add_rms_norm(activation(residual_after_), y, norm_after_.weight(), work_.eps);
  return {sum, normed};
}

void LayerBench::forward_backward(const nn::LinearKernel& kernel) const {
  if (work_.recompute == Recompute::full) {
    const autograd::NoGrad first_time;
    (void)forward(kernel);
  }
  Tape tape(work_.recompute == Recompute::selective ? Recompute::selective : Recompute::none);
  {
    const autograd::TapeScope scope(tape);
    for (const Variable& result : forward(kernel)) result.gradient()->contribute(gradient_);
  }
  tape.backward();
}

void LayerBench::run(const nn::LinearKernel& kernel) {
  // As after an optimizer step.
  weight_.mark_changed();
  weight_.amax_version = weight_.version;
  for (nn::Parameter* parameter : {&weight_, &bias_, &norm_before_, &norm_after_})
    if (parameter->variable.defined()) parameter->variable.gradient()->reset();
  for (std::int64_t i = 0; i < work_.micro_batches; ++i) forward_backward(kernel);
}

double LayerBench::milliseconds(const nn::LinearKernel& kernel, const TimingOptions& timing) {
  const GemmTuning tuning;
  weight_.amax = kernel.uses_weight_amax() ? amax(weight_.variable.value(), Granularity::tensor) : Tensor();
  const double all = median_milliseconds(weight_.variable.value().device(), timing, [&] { run(kernel); });
  return all / static_cast<double>(work_.micro_batches);
}

}  // namespace quench
