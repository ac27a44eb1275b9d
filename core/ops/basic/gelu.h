#pragma once
// Gaussian error linear unit (Hendrycks and Gimpel, 2016, arXiv:1606.08415, section 2): f32 and bf16, arithmetic in
// f32, one rounding.

#include "core/device/kernel_slot.h"
#include "core/tensor/tensor.h"

namespace quench {

// Form of the Gaussian distribution function P(x) in x P(x).
enum class GeluForm {
  tanh,  // approximation: (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
  exact  // erfc(-x / sqrt(2)) / 2
};

// Both, for tests.
inline constexpr GeluForm kGeluForms[] = {GeluForm::tanh, GeluForm::exact};

struct GeluArgs {
  Tensor x;  // any shape, contiguous
  Tensor y;  // shape and dtype of x, contiguous; may alias x
  GeluForm form = GeluForm::tanh;
};

struct GeluBackwardArgs {
  Tensor dy;  // any shape, contiguous
  Tensor x;   // like dy
  Tensor dx;  // like dy; may alias dy or x
  GeluForm form = GeluForm::tanh;
};

extern constinit KernelSlot<GeluArgs> gelu_slot;
extern constinit KernelSlot<GeluBackwardArgs> gelu_backward_slot;

// y = x P(x).
void gelu(const GeluArgs& args);
// dx = dy (P(x) + x P'(x)).
void gelu_backward(const GeluBackwardArgs& args);

}  // namespace quench
