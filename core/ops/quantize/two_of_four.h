#pragma once
// 2:4 sparsity of weights (core/number/two_of_four.h).

#include <string>

#include "core/device/kernel_slot.h"
#include "core/number/two_of_four.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = x where an element stays, 0 elsewhere. Both contiguous [R,C] of one dtype, f32, bf16 or f16; out may be x. C is
// a multiple of 4, with TwoOfFour::transposable R too.
struct KeepTwoOfFourArgs {
  Tensor x, out;
  TwoOfFour rule = TwoOfFour::magnitude;
};
extern constinit KernelSlot<KeepTwoOfFourArgs> keep_two_of_four_slot;
// Throws invalid_argument naming what does not fit.
void keep_two_of_four(const KeepTwoOfFourArgs& args);
[[nodiscard]] Tensor two_of_four(const Tensor& x, TwoOfFour rule);

// Why a matrix of this shape cannot be 2:4, or "".
[[nodiscard]] std::string two_of_four_problem(TwoOfFour rule, std::int64_t rows, std::int64_t columns);

}  // namespace quench
