#include "train/probe/observed_linear.h"

#include <array>

namespace quench {

using autograd::Tape;
using autograd::Variable;

Variable ObservedLinear::observe(const Variable& x, const nn::Parameter& weight, const autograd::Weight& bias) const {
  const Variable y = wrapped().apply(x, weight, bias);
  // A second variable of the same value receives the gradient before the layer's backward function.
  Variable seen(y.value());
  const bool recorded = Tape::record("observed linear", {y}, std::array{&seen}, [&] {
    // Not y: the backward of a gated activation reuses its memory if unshared.
    return
        [observer = observer_, x = x.value(), w = weight.weight(), bias, dy = y.gradient(), dy_of = seen.gradient()] {
          observer({x, w.acquire().value(), bias.acquire().value(), dy_of->value()});
          dy->contribute(dy_of->fused());
        };
  });
  if (!recorded) return y;
  autograd::QuantOutputRequest request = y.gradient()->quant_request();
  request.value_needed = true;
  seen.gradient()->set_quant_request(request);
  return seen;
}

LinearProducts run_products(const nn::LinearKernel& kernel, const LinearOperands& operands) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Variable x = Variable::leaf(operands.x);
  nn::Parameter weight;
  weight.variable = Variable::leaf(operands.w, DType::f32);
  weight.global_shape = operands.w.shape();
  LinearProducts products;
  Tape tape;
  {
    const autograd::TapeScope recording(tape);
    const Variable y = kernel.apply(x, weight, operands.b.defined() ? Variable(operands.b) : Variable());
    products.y = y.value();
    y.gradient()->contribute(operands.dy);
  }
  tape.backward();
  products.dx = x.grad();
  products.dw = weight.variable.grad();
  return products;
}

}  // namespace quench
