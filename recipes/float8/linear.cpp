#include "recipes/float8/linear.h"

#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "recipes/float8/gemms.h"
#include "recipes/float8/head.h"
#include "recipes/free_in_backward.h"
#include "recipes/pad_and_bias.h"

namespace quench::recipes {
namespace {

using autograd::FusedValue;
using autograd::Gradient;
using autograd::GradientTarget;
using autograd::Saved;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

template <class Product>
void into_gradient(Gradient& gradient, const Shape& shape, const Shape& padded_shape, DType dtype, Device device,
                   const Product& product) {
  if (shape == padded_shape) {
    const GradientTarget into = gradient.target();
    product(into.tensor, into.accumulate ? 1.0f : 0.0f);
    return;
  }
  const Tensor whole = Tensor::empty(padded_shape, dtype, device);
  product(whole, 0.0f);
  const Tensor part = Tensor::empty(shape, dtype, device);
  copy_rows({whole.narrow(0, 0, shape[0]).narrow(1, 0, shape[1]), part});
  gradient.contribute(part);
}

// Outputs that hold for the padded tensor as well.
QuantOutputs amax_of(const QuantOutputs& outputs) {
  QuantOutputs amax;
  amax.amax = outputs.amax;
  amax.accumulates_amax = outputs.accumulates_amax;
  return amax;
}

}  // namespace

struct Float8Linear::Backward {
  Float8Gemms gemms;
  std::shared_ptr<Float8Weight> weight_codes;
  const nn::Parameter* parameter;
  Weight w;
  std::int64_t rows, in, out;  // M, K, N
  Saved saved_x;               // if wgrad casts x again, or runs in high precision
  Float8Matrix x_codes;        // columnwise, or only its scales
  std::shared_ptr<Gradient> dx, dw, db, y_gradient;
  LayerHealth health;
  Float8Rounding rounding;  // rounding of dy
  OperandScaling scaling;   // scaling of dy

  void operator()() const {
    const MemoryScope scope(MemoryCategory::workspace);
    Tensor dy = y_gradient->fused().operand();  // read as the request says, or only its codes
    const DType dtype = dy.dtype();
    const bool pads = gemms.size(rows) != rows || gemms.size(out) != out;
    Tensor source = pads ? zero_padded(dy, gemms.size(rows), gemms.size(out)) : dy;
    const Float8Uses dy_uses = gemms.gradient_uses(dx != nullptr, dw != nullptr);
    const QuantOutputs& fused = y_gradient->fused().quant_outputs();
    const Float8Matrix gradient(source, dy_uses, pads ? amax_of(fused) : fused, true, rounding, scaling);
    health.record(LayerOperand::output_gradient, source, gradient.rowwise(), dy.numel(), rounding.key.has_value());
    if (db == nullptr && (dx == nullptr || gemms.scheme().dgrad) && (dw == nullptr || gemms.scheme().wgrad)) {
      // The GEMMs read the codes alone.
      dy = source = Tensor();
      y_gradient->release();
    }
    if (dw) weight_gradient(dy, gradient.columnwise());
    if (db) {
      const GradientTarget into = db->target();
      column_sum({.x = dy, .out = into.tensor, .accumulate = into.accumulate});
    }
    if (dx) input_gradient(dy, gradient.rowwise(), dtype);
  }

  void input_gradient(const Tensor& dy, const QuantTensor& codes, DType dtype) const {
    const Float8Scheme& scheme = gemms.scheme();
    if (!scheme.dgrad) {
      const GradientTarget into = dx->target();
      gemm({.a = dy, .b = w.acquire().value(), .c = into.tensor, .beta = into.accumulate ? 1.0f : 0.0f});
      return;
    }
    const std::int64_t m = gemms.size(rows), k = gemms.size(in);
    const Float8Weight::Operand operand = weight_codes->columnwise(*parameter, gemms);
    into_gradient(*dx, {rows, in}, {m, k}, dtype, codes.device(),
                  [&](const Tensor& c, float beta) { gemms.multiply(codes, operand.codes, c, beta, *scheme.dgrad); });
  }

  // Deferred if the producer recomputes x.
  void weight_gradient(const Tensor& dy, const QuantTensor& dy_codes) const {
    dw->begin_use();
    const auto finish = [dw = dw, product = wgrad(dy, dy_codes)](FusedValue recomputed_x) {
      product(std::move(recomputed_x));
      dw->end_use();
    };
    if (x_codes.columnwise().defined()) return finish({});
    autograd::QuantOutputRequest request =
        gemms.scheme().wgrad ? x_codes.columnwise_request() : autograd::QuantOutputRequest{};
    request.row_multiple = gemms.size(1);
    if (!saved_x.defer({.run = finish, .request = request})) finish(saved_x.get());
  }

  [[nodiscard]] std::function<void(FusedValue)> wgrad(const Tensor& dy, const QuantTensor& dy_codes) const {
    if (!gemms.scheme().wgrad)
      return [dy, dw = dw](const FusedValue& recomputed_x) {
        const GradientTarget into = dw->target();
        gemm({.a = dy,
              .b = recomputed_x.value(),
              .c = into.tensor,
              .transpose_a = true,
              .beta = into.accumulate ? 1.0f : 0.0f});
      };
    return [gemms = gemms, dy_codes, x_codes = x_codes, dw = dw, m = rows, k = in, n = out](FusedValue recomputed_x) {
      const MemoryScope scope(MemoryCategory::workspace);
      const QuantTensor& made = recomputed_x.quant_outputs().transposed_codes;
      const QuantTensor columnwise =
          x_codes.columnwise().defined() ? x_codes.columnwise()
          : made.defined()               ? made.transposed_view()
                           : x_codes.make_columnwise(zero_padded(recomputed_x.value(), gemms.size(m), gemms.size(k)));
      recomputed_x = {};
      into_gradient(
          *dw, {n, k}, {gemms.size(n), gemms.size(k)}, dw->dtype(), dy_codes.device(),
          [&](const Tensor& c, float beta) { gemms.multiply(dy_codes, columnwise, c, beta, *gemms.scheme().wgrad); });
    };
  }
};

Float8Linear::Float8Linear(const Float8Scheme& scheme, const Float8LinearOptions& options)
    : scheme_(scheme),
      options_(options),
      weight_(std::make_shared<Float8Weight>(Float8Gemms(scheme, options.emulate, Device{}).weight_uses(),
                                             options.keep_weight)) {}

autograd::QuantOutputRequest Float8Linear::input_quant_request(const nn::Parameter& weight) const {
  const bool recorded = Tape::current() != nullptr, training = recorded && weight.weight().requires_grad();
  const Float8Gemms gemms(scheme_, options_.emulate, weight.weight().device());
  autograd::QuantOutputRequest request = request_for(gemms.input_uses(training), {}, options_.scaling.input(recorded));
  if (!request.scale.defined()) return request;
  const std::int64_t width = weight.weight().shape()[1];
  if (gemms.size(width) != width) request.scale = Tensor();  // padded
  request.row_multiple = gemms.size(1);
  // Otherwise the producer recomputes x.
  request.transposed_codes &= recorded && Tape::current()->recompute() != autograd::Recompute::selective;
  request.value_needed = !scheme_.forward || (training && !scheme_.wgrad) || options_.health.wants(LayerOperand::input);
  return request;
}

autograd::QuantOutputRequest Float8Linear::gradient_request(const Backward& backward) const {
  const Float8Gemms& gemms = backward.gemms;
  const bool trains_input = backward.dx != nullptr, trains_weight = backward.dw != nullptr;
  autograd::QuantOutputRequest request =
      request_for(gemms.gradient_uses(trains_input, trains_weight), backward.rounding, backward.scaling);
  if (gemms.size(backward.out) != backward.out) request.scale = Tensor();  // padded
  request.row_multiple = gemms.size(1);
  request.value_needed = (trains_input && !scheme_.dgrad) || (trains_weight && !scheme_.wgrad) ||
                         backward.db != nullptr || options_.health.wants(LayerOperand::output_gradient);
  return request;
}

Float8Rounding Float8Linear::gradient_rounding() const {
  Float8Rounding rounding{options_.gradient_draws};
  if (rounding.key && Tape::current() != nullptr) rounding.key->step = Tape::current()->pass();
  return rounding;
}

struct Float8Linear::Input {
  Float8Gemms gemms;
  Tensor x;       // [M,K]
  Tensor source;  // zero-padded
  Float8Matrix codes;
};

Float8Linear::Input Float8Linear::quantized(const Variable& x, bool wgrad_follows, bool columnwise_wanted,
                                            bool transpose_now, bool records) const {
  const Tensor in = x.fused().operand();  // read as the request says, or only its codes
  const QuantOutputs& fused = x.fused().quant_outputs();
  Float8Gemms gemms(scheme_, options_.emulate, in.device());
  // wgrad reduces over M, which is then padded as well.
  const std::int64_t rows = wgrad_follows && scheme_.wgrad ? gemms.size(in.size(0)) : in.size(0);
  const Tensor source = fused.has_codes() ? in : zero_padded(in, rows, gemms.size(in.size(1)));
  const bool pads = source.shape() != in.shape();
  return {gemms, in, source,
          Float8Matrix(source, gemms.input_uses(columnwise_wanted), pads ? amax_of(fused) : fused, transpose_now, {},
                       options_.scaling.input(records))};
}

void Float8Linear::multiply(const Input& input, const nn::Parameter& weight, const Weight& bias, const Tensor& y,
                            float beta, bool backward_follows, const LayerHealth& health) const {
  const Float8Gemms& gemms = input.gemms;
  health.record(LayerOperand::input, input.source, input.codes.rowwise(), input.x.numel());
  if (!scheme_.forward) {
    gemm({.a = input.x,
          .b = weight.weight().acquire().value(),
          .c = y,
          .transpose_b = true,
          .beta = beta,
          .bias = bias.acquire().value()});
    return;
  }
  const Float8Weight::Operand w = weight_->rowwise(weight, gemms, backward_follows, health);
  const Shape whole_shape{input.source.size(0), w.codes.shape()[0]};
  if (whole_shape == y.shape()) {
    gemms.multiply(input.codes.rowwise(), w.codes, y, beta, *scheme_.forward);
  } else {
    const Tensor whole = beta == 0.0f ? Tensor::empty(whole_shape, y.dtype(), y.device())
                                      : zero_padded(y, whole_shape[0], whole_shape[1]);
    gemms.multiply(input.codes.rowwise(), w.codes, whole, beta, *scheme_.forward);
    copy_rows({whole.narrow(0, 0, y.size(0)).narrow(1, 0, y.size(1)), y});
  }
  if (bias.defined()) add_bias(y, bias.acquire().value());
}

bool Float8Linear::supports(const nn::LinearCall& call, const nn::Parameter&, const Weight&) const {
  return !call.is_fused() || (call.norm == nullptr && call.epilogue == nn::LinearEpilogue::accumulate &&
                              call.mode != nn::LinearMode::recompute);
}

nn::LinearOutput Float8Linear::do_run(const nn::LinearCall& call, const nn::Parameter& weight,
                                      const Weight& bias) const {
  const Variable& x = call.x;
  if (call.mode == nn::LinearMode::recompute) return {Variable(recomputed(x, weight, bias))};
  if (call.epilogue == nn::LinearEpilogue::accumulate) return {forward(x, weight, bias, call.out, 1.0f)};
  const MemoryScope scope(MemoryCategory::activations);
  return {
      forward(x, weight, bias, Tensor::empty({x.shape()[0], weight.weight().shape()[0]}, x.dtype(), x.device()), 0.0f)};
}

Variable Float8Linear::forward(const Variable& x, const nn::Parameter& weight, const Weight& bias, const Tensor& result,
                               float beta) const {
  const Tensor& in = x.fused().operand();
  const Weight w = weight.weight();
  QUENCH_CHECK(in.rank() == 2 && w.shape().rank() == 2 && in.size(1) == w.shape()[1],
               "{} linear: x is {}, weight is {}; expected [M,K] and [N,K]", scheme_.name, in.describe(), w.describe());
  const MemoryScope scope(MemoryCategory::activations);
  Variable y(result);

  const bool recorded = Tape::current() != nullptr, training = recorded && w.requires_grad();
  Input input = quantized(x, training, training, !is_free_in_backward(x), recorded);
  multiply(input, weight, bias, y.value(), beta, Tape::current() != nullptr && x.requires_grad(), options_.health);

  Tape::record(scheme_.name, {x, w, bias}, std::array{&y}, [&]() -> std::function<void()> {
    input.codes.drop_rowwise();
    const bool needs_x = w.requires_grad() && !input.codes.columnwise().defined();
    Backward backward{input.gemms,
                      weight_,
                      &weight,
                      w,
                      in.size(0),
                      in.size(1),
                      w.shape()[0],
                      needs_x ? Saved(x) : Saved(),
                      std::move(input.codes),
                      x.gradient(),
                      w.gradient(),
                      bias.gradient(),
                      y.gradient(),
                      options_.health,
                      gradient_rounding(),
                      options_.scaling.output_gradient(true)};
    y.gradient()->set_quant_request(gradient_request(backward));
    return backward;
  });
  return y;
}

Tensor Float8Linear::recomputed(const Variable& x, const nn::Parameter& weight, const Weight& bias) const {
  const MemoryScope scope(MemoryCategory::activations);
  Tensor y = Tensor::empty({x.shape()[0], weight.global_shape[0]}, x.dtype(), x.device());
  // Same sizes as the recorded GEMM, so that a library selects the same kernel.
  multiply(quantized(x, weight.weight().requires_grad(), false, false, false), weight, bias, y, 0.0f, true,
           LayerHealth());
  return y;
}

nn::WeightRequirements Float8Linear::weight_requirements(const nn::Parameter& weight) const {
  const Float8Gemms gemms(scheme_, options_.emulate, weight.variable.value().device());
  const Float8Uses uses = gemms.weight_uses();
  nn::WeightRequirements wanted{.amax = request_for(uses).amax};
  // Padding precedes quantization.
  const auto pads = [&](std::int64_t size) { return gemms.size(size) != size; };
  if (!options_.keep_weight && !pads(weight.global_shape[0]) && !pads(weight.global_shape[1]))
    wanted.gathered = preferred_weight_formats(uses);
  return wanted;
}

std::unique_ptr<HeadGemms> Float8Linear::head_gemms(const nn::Parameter& weight) const {
  return std::make_unique<Float8Head>(Float8Gemms(scheme_, options_.emulate, weight.weight().device()), weight,
                                      options_.health, Tape::current() != nullptr, gradient_rounding());
}

}  // namespace quench::recipes
