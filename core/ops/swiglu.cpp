#include "core/ops/swiglu.h"

#include "core/tensor/op_checks.h"

namespace quench {

constinit KernelSlot<SwigluArgs> swiglu_slot("swiglu");
constinit KernelSlot<SwigluBackwardArgs> swiglu_backward_slot("swiglu_backward");

namespace {

Shape check_gate_up(std::string_view op, const Tensor& gate_up) {
  check_float_tensor(op, "gate_up", gate_up, 2);
  check_contiguous(op, "gate_up", gate_up);
  QUENCH_CHECK(gate_up.size(1) % 2 == 0, "{}: gate_up is {}, its width must be even", op, gate_up.describe());
  return {gate_up.size(0), gate_up.size(1) / 2};
}

// Undefined, or contiguous [shape] as `like`.
void check_result(std::string_view op, std::string_view name, const Tensor& result, const Shape& shape,
                  const Tensor& like) {
  if (!result.defined()) return;
  check_tensor(op, name, result, shape, like.dtype());
  check_contiguous(op, name, result);
  check_same_device(op, {&result, &like});
}

}  // namespace

void swiglu(const SwigluArgs& args) {
  constexpr std::string_view op = "swiglu";
  const Shape shape = check_gate_up(op, args.gate_up);
  check_result(op, "out", args.out, shape, args.gate_up);
  check_quant_outputs(op, args.quant_outputs, args.out, shape);
  if (shape.numel() == 0) return args.out.defined() ? fill_quant_outputs(args.quant_outputs, args.out) : void();
  swiglu_slot(args.gate_up.device().type, args);
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  constexpr std::string_view op = "swiglu_backward";
  check_tensor(op, "dout", args.dout, check_gate_up(op, args.gate_up), args.gate_up.dtype());
  check_contiguous(op, "dout", args.dout);
  check_result(op, "dgate_up", args.dgate_up, args.gate_up.shape(), args.gate_up);
  check_result(op, "out", args.out, args.dout.shape(), args.gate_up);
  check_same_device(op, {&args.dout, &args.gate_up});
  check_quant_outputs(op, args.quant_outputs, args.dgate_up, args.gate_up.shape());
  const QuantOutputs& again = args.out_codes;
  if (again.wanted()) {
    QUENCH_CHECK(!again.amax.defined() && !again.rows.defined() && !again.column_amax.defined(),
                 "swiglu_backward: the recomputed output has codes alone");
    check_quant_outputs(op, again, args.out, args.dout.shape());
  }
  if (args.dout.numel() == 0)
    return args.dgate_up.defined() ? fill_quant_outputs(args.quant_outputs, args.dgate_up) : void();
  // CPU: first, since dgate_up may alias gate_up.
  if ((args.out.defined() || again.wanted()) && args.dout.device().is_cpu())
    swiglu_slot(DeviceType::cpu,
                {.gate_up = args.gate_up, .out = args.out, .quant_outputs = again, .activation = args.activation});
  swiglu_backward_slot(args.dout.device().type, args);
}

}  // namespace quench
