// Squared ReLU, y = max(x, 0)^2: what the CPU file and the CUDA file share.
#pragma once
#include <quench/autograd.h>

struct SquaredReluArgs {
  quench::Tensor x;  // f32, contiguous
  quench::Tensor y;  // out, shape of x
};

struct SquaredReluBackwardArgs {
  quench::Tensor x, dy;
  quench::Tensor dx;  // out
};

// One kernel for each device type, filled in by custom_op.cpp (CPU) and custom_op.cu (CUDA).
extern constinit quench::KernelSlot<SquaredReluArgs> squared_relu_slot;
extern constinit quench::KernelSlot<SquaredReluBackwardArgs> squared_relu_backward_slot;
