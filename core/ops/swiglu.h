#pragma once
// SwiGLU (Shazeer, 2020, arXiv:2002.05202): out = silu(gate) * up, with gate and up side by side in one matrix.

#include "core/device/kernel_slot.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SwigluArgs {
  Tensor gate_up;                // [N,2I]: columns 0..I-1 gate, I..2I-1 up; f32 or bf16, contiguous
  Tensor out;                    // [N,I]
  QuantOutputs quant_outputs{};  // of out
};

struct SwigluBackwardArgs {
  Tensor dout;      // [N,I]
  Tensor gate_up;   // [N,2I]
  Tensor dgate_up;  // out, [N,2I]; may alias gate_up
  Tensor out;       // out, [N,I], or undefined: the forward result once more, for a backward pass that did not keep it
  QuantOutputs quant_outputs{};  // of dgate_up
};

extern constinit KernelSlot<SwigluArgs> swiglu_slot;
extern constinit KernelSlot<SwigluBackwardArgs> swiglu_backward_slot;

// silu and the product are evaluated in f32 with one rounding to the activation dtype.
void swiglu(const SwigluArgs& args);
void swiglu_backward(const SwigluBackwardArgs& args);

}  // namespace quench
