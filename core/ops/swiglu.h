#pragma once
// Gated linear units (Shazeer, 2020, arXiv:2002.05202): out = activation(gate) * up; SwiGLU unless told otherwise.

#include "core/device/kernel_slot.h"
#include "core/ops/gated_activation.h"
#include "core/ops/quantize/quant_outputs.h"
#include "core/tensor/tensor.h"

namespace quench {

struct SwigluArgs {
  Tensor gate_up;                // [N,2I]: gate, up; f32/bf16, contiguous
  Tensor out;                    // [N,I]; undefined: codes in `quant_outputs` alone
  QuantOutputs quant_outputs{};  // out
  GatedActivation activation = GatedActivation::silu;
};

struct SwigluBackwardArgs {
  Tensor dout;
  Tensor gate_up;
  Tensor dgate_up;               // out, [N,2I]; may alias gate_up; undefined: codes in `quant_outputs` alone
  Tensor out{};                  // optional: recomputed forward output
  QuantOutputs quant_outputs{};  // dgate_up
  QuantOutputs out_codes{};      // optional, in place of or next to `out`: codes of the recomputed output alone
  GatedActivation activation = GatedActivation::silu;
};

extern constinit KernelSlot<SwigluArgs> swiglu_slot;
extern constinit KernelSlot<SwigluBackwardArgs> swiglu_backward_slot;

// Arithmetic in f32, one rounding.
void swiglu(const SwigluArgs& args);
// Gradient of swiglu(), and its recomputed output if asked for.
void swiglu_backward(const SwigluBackwardArgs& args);

}  // namespace quench
