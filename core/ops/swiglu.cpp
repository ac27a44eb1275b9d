#include "core/ops/swiglu.h"

#include "core/ops/op_checks.h"

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

}  // namespace

void swiglu(const SwigluArgs& args) {
  constexpr std::string_view op = "swiglu";
  check_tensor(op, "out", args.out, check_gate_up(op, args.gate_up), args.gate_up.dtype());
  check_contiguous(op, "out", args.out);
  check_same_device(op, {&args.gate_up, &args.out});
  check_quant_outputs(op, args.quant_outputs, args.out);
  if (args.out.numel() == 0) return fill_quant_outputs(args.quant_outputs, args.out);
  swiglu_slot(args.out.device().type, args);
}

void swiglu_backward(const SwigluBackwardArgs& args) {
  constexpr std::string_view op = "swiglu_backward";
  check_tensor(op, "dout", args.dout, check_gate_up(op, args.gate_up), args.gate_up.dtype());
  check_contiguous(op, "dout", args.dout);
  check_tensor(op, "dgate_up", args.dgate_up, args.gate_up.shape(), args.gate_up.dtype());
  check_contiguous(op, "dgate_up", args.dgate_up);
  if (args.out.defined()) {
    check_tensor(op, "out", args.out, args.dout.shape(), args.gate_up.dtype());
    check_contiguous(op, "out", args.out);
  }
  check_same_device(op, {&args.dout, &args.gate_up, &args.dgate_up, &args.out});
  check_quant_outputs(op, args.quant_outputs, args.dgate_up);
  if (args.dout.numel() == 0) return fill_quant_outputs(args.quant_outputs, args.dgate_up);
  // CPU: first, since dgate_up may alias gate_up.
  if (args.out.defined() && args.dout.device().is_cpu())
    swiglu_slot(DeviceType::cpu, {.gate_up = args.gate_up, .out = args.out, .activation = args.activation});
  swiglu_backward_slot(args.dout.device().type, args);
}

}  // namespace quench
