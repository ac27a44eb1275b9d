#pragma once
// An op that core/ does not know: ReGLU (Shazeer, 2020, arXiv:2002.05202), out = max(gate, 0) * up, with gate and up
// side by side in one matrix. The four parts of an op in two files: contract here; checks, kernel and differentiable
// function in op_test.cpp.

#include "autograd/tape.h"
#include "core/device/kernel_slot.h"

namespace quench::testing {

struct RegluArgs {
  Tensor gate_up;  // [N,2I]: columns 0..I-1 gate, I..2I-1 up; f32 or bf16, contiguous
  Tensor out;      // [N,I]
};

struct RegluBackwardArgs {
  Tensor dout;      // [N,I]
  Tensor gate_up;   // [N,2I]
  Tensor dgate_up;  // out, [N,2I]
};

extern constinit KernelSlot<RegluArgs> reglu_slot;
extern constinit KernelSlot<RegluBackwardArgs> reglu_backward_slot;

void reglu(const RegluArgs& args);
void reglu_backward(const RegluBackwardArgs& args);

[[nodiscard]] autograd::Variable reglu(const autograd::Variable& gate_up);

}  // namespace quench::testing
