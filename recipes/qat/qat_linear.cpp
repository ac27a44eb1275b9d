#include "recipes/qat/qat_linear.h"

#include <array>

#include "core/ops/elementwise.h"
#include "core/ops/gemm.h"
#include "recipes/free_in_backward.h"
#include "recipes/lora/adapter_name.h"
#include "recipes/qat/qat_head.h"
#include "recipes/qat/scale_parameter.h"

namespace quench::recipes {

using autograd::Gradient;
using autograd::GradientTarget;
using autograd::Saved;
using autograd::Tape;
using autograd::Variable;
using autograd::Weight;

namespace {

struct SeenInput {
  FakeFormat format;
  bool saved_quantized;

  [[nodiscard]] Tensor operator()(const Tensor& saved) const {
    return saved_quantized ? saved : fake_quantize(saved, format, false).values;
  }
};

}  // namespace

struct QatLinear::Backward {
  QatScheme scheme;
  std::shared_ptr<FakeWeight> weight;
  std::shared_ptr<nn::LowRankAdapter> adapter;
  std::shared_ptr<nn::Parameter> scales;
  const nn::Parameter* parameter;
  Saved saved_x;
  SeenInput seen;
  Tensor input_mask;
  std::shared_ptr<Gradient> dx, dw, db, dscales, dy_of;

  void operator()() const {
    const MemoryScope scope(MemoryCategory::workspace);
    const Tensor dy = dy_of->value();
    const FakeQuantized w = weight->get(*parameter, dw != nullptr);
    if (dw && dscales)
      weight_and_scale_gradients(dy, w.mask);
    else if (dw)
      weight_gradient(dy, w.mask);
    if (adapter) adapter_gradients(dy);
    if (db) {
      const GradientTarget into = db->target();
      column_sum({.x = dy, .out = into.tensor, .accumulate = into.accumulate});
    }
    if (dx) input_gradient(dy, w.values);
  }

  void input_gradient(const Tensor& dy, const Tensor& w) const {
    if (!input_mask.defined()) {
      const GradientTarget into = dx->target();
      gemm({.a = dy, .b = w, .c = into.tensor, .beta = into.accumulate ? 1.0f : 0.0f});
      return;
    }
    // Contributions of other functions are not masked.
    const Tensor own = Tensor::empty({dy.size(0), w.size(1)}, dy.dtype(), dy.device());
    gemm({.a = dy, .b = w, .c = own});
    stop_gradient(own, input_mask);
    dx->contribute(own);
  }

  // Deferred if the producer recomputes x.
  void weight_gradient(const Tensor& dy, const Tensor& mask) const {
    dw->begin_use();
    const auto finish = [dw = dw, dy, mask, seen = seen](const Tensor& saved) {
      const Tensor x = seen(saved);
      const GradientTarget into = dw->target();
      gemm({.a = dy, .b = x, .c = into.tensor, .transpose_a = true, .beta = into.accumulate ? 1.0f : 0.0f});
      // Earlier micro-batches of the step had the same mask.
      stop_gradient(into.tensor, mask);
      dw->end_use();
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }

  // Uses all elements of the gradient of q(W), clipped ones included.
  void weight_and_scale_gradients(const Tensor& dy, const Tensor& mask) const {
    dw->begin_use();
    dscales->begin_use();
    const auto finish = [dw = dw, ds = dscales, dy, mask, scales = scales, parameter = parameter, seen = seen,
                         integers = scheme.weight.integers](const Tensor& saved) {
      const MemoryScope scope(MemoryCategory::workspace);
      const Tensor x = seen(saved);
      // Earlier micro-batches have already contributed to the scales.
      const bool first = !dw->has_value();
      const Tensor own = first ? dw->target().tensor : Tensor::empty({dy.size(1), x.size(1)}, dw->dtype(), dy.device());
      gemm({.a = dy, .b = x, .c = own, .transpose_a = true});
      contribute_scale_gradient(*ds, *scales, *parameter, own, integers);
      stop_gradient(own, mask);
      if (!first) dw->contribute(own);
      dw->end_use();
      ds->end_use();
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }

  void adapter_gradients(const Tensor& dy) const {
    std::vector<std::shared_ptr<Gradient>> gradients{adapter->a().weight().gradient()};
    for (std::size_t i = 0; i < adapter->pieces().size(); ++i) gradients.push_back(adapter->b(i).weight().gradient());
    if (!gradients.front()) return;
    for (const auto& gradient : gradients) gradient->begin_use();
    const auto finish = [adapter = adapter, gradients, dy, seen = seen](const Tensor& saved) {
      const MemoryScope scope(MemoryCategory::workspace);
      const Tensor x = seen(saved);
      const Weight::Acquired a = adapter->a().weight().acquire();
      const Shape shape{x.size(0), adapter->rank()};
      const Tensor hidden = Tensor::empty(shape, x.dtype(), x.device());
      const Tensor dhidden = Tensor::empty(shape, x.dtype(), x.device());
      gemm({.a = x, .b = a.value(), .c = hidden, .transpose_b = true});
      for (std::size_t i = 0; i < adapter->pieces().size(); ++i) {
        const nn::LowRankPiece& piece = adapter->pieces()[i];
        const Tensor rows = dy.narrow(1, piece.row_begin, piece.rows);
        const GradientTarget of_b = gradients[i + 1]->target();
        gemm({.a = rows,
              .b = hidden.narrow(1, piece.rank_begin, piece.rank),
              .c = of_b.tensor,
              .transpose_a = true,
              .alpha = piece.scale,
              .beta = of_b.accumulate ? 1.0f : 0.0f});
        gemm({.a = rows,
              .b = adapter->b(i).weight().acquire().value(),
              .c = dhidden.narrow(1, piece.rank_begin, piece.rank),
              .alpha = piece.scale});
      }
      const GradientTarget of_a = gradients.front()->target();
      gemm({.a = dhidden, .b = x, .c = of_a.tensor, .transpose_a = true, .beta = of_a.accumulate ? 1.0f : 0.0f});
      for (const auto& gradient : gradients) gradient->end_use();
    };
    if (!saved_x.defer(finish)) finish(saved_x.get());
  }
};

QatLinear::QatLinear(const QatScheme& scheme, bool keep_weight, std::shared_ptr<nn::LowRankAdapter> adapter,
                     std::shared_ptr<nn::Parameter> scales)
    : scheme_(scheme),
      keep_weight_(keep_weight),
      adapter_(std::move(adapter)),
      scales_(std::move(scales)),
      name_(std::string(scheme.name) +
            (scheme.weight.kind == FakeFormat::Kind::gguf ? " (" + scheme.weight.describe() + ")" : std::string()) +
            (adapter_  ? " of W + " + adapter_name("lora", adapter_->pieces())
             : scales_ ? std::string(" with learned scales")
                       : std::string())),
      weight_(std::make_shared<FakeWeight>(scheme.weight, keep_weight, adapter_, scales_)) {
  QUENCH_CHECK(!adapter_ || !scales_, "{} linear: scales of a weight with an adapter cannot be trained", scheme.name);
}

QatLinear::~QatLinear() = default;

std::vector<nn::KernelParameter> QatLinear::parameters() const {
  if (scales_) return {{"weight_scale", scales_.get()}};
  return adapter_ ? adapter_->parameters() : std::vector<nn::KernelParameter>();
}

void QatLinear::begin_with(const nn::Parameter& weight) const {
  if (scales_) begin_scales(*scales_, weight, scheme_.weight.integers);
}

std::shared_ptr<const nn::LinearKernel> QatLinear::with_adapter(
    const std::shared_ptr<nn::LowRankAdapter>& adapter) const {
  return std::make_shared<QatLinear>(scheme_, keep_weight_, adapter);
}

std::unique_ptr<HeadGemms> QatLinear::head_gemms(const nn::Parameter& weight) const {
  return std::make_unique<QatHead>(
      scheme_, fake_quantize(weight.weight().acquire().value(), scheme_.weight, Tape::current() != nullptr));
}

nn::LinearOutput QatLinear::do_run(const nn::LinearCall& call, const nn::Parameter& weight, const Weight& bias) const {
  const Variable& x = call.x;
  const Weight w = weight.weight();
  QUENCH_CHECK(x.value().rank() == 2 && w.shape().rank() == 2 && x.value().size(1) == w.shape()[1],
               "{} linear: x is {}, weight is {}; expected [M,K] and [N,K]", scheme_.name, x.value().describe(),
               w.describe());
  QUENCH_CHECK(!adapter_ || !w.requires_grad(), "{} linear: the weight under an adapter is frozen", scheme_.name);
  const MemoryScope scope(MemoryCategory::activations);
  Variable y(Tensor::empty({x.value().size(0), w.shape()[0]}, x.value().dtype(), x.value().device()));
  FakeQuantized input = fake_quantize(x.value(), scheme_.input, Tape::current() != nullptr && x.requires_grad());
  gemm({.a = input.values,
        .b = weight_->get(weight, false).values,
        .c = y.value(),
        .transpose_b = true,
        .bias = bias.acquire().value()});
  // Fake-quantized x is saved unless x is free.
  const bool keep_quantized = !is_free_in_backward(x);
  if (!keep_quantized) input.values = Tensor();

  std::vector<Tape::Input> inputs{x, w, bias};
  if (scales_) inputs.emplace_back(scales_->weight());
  bool trains_adapter = false;
  if (adapter_) {
    for (const nn::KernelParameter& own : adapter_->parameters()) {
      inputs.emplace_back(own.parameter->weight());
      trains_adapter = trains_adapter || own.parameter->weight().requires_grad();
    }
  }
  Tape::record(scheme_.name, inputs, std::array{&y}, [&] {
    return Backward{scheme_,
                    weight_,
                    adapter_,
                    scales_,
                    &weight,
                    !w.requires_grad() && !trains_adapter ? Saved()
                    : keep_quantized                      ? Saved(input.values)
                                                          : Saved(x),
                    {scheme_.input, keep_quantized},
                    input.mask,
                    x.gradient(),
                    w.gradient(),
                    bias.gradient(),
                    scales_ ? scales_->weight().gradient() : nullptr,
                    y.gradient()};
  });
  return {y};
}

}  // namespace quench::recipes
