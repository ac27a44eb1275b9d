#pragma once
// The Newton-Schulz iteration of Muon (Jordan et al., 2024), as torch.optim.Muon has it.

#include "core/tensor/tensor.h"

namespace quench::nn {

// The matrix nearest to orthogonal, up to singular values of 0.7 to 1.2: five iterations in bf16 of
// x = (a I + b g + c g^2) x with g = x x^T, a = 3.4445, b = -4.7750 and c = 2.0315, from x divided by its norm (the
// root of the first g's trace, so that x is not read for it). x is bf16 [R, C], or [batch, R, C]: each matrix by
// itself, with the same bits; in and out.
//
// g is as large as the smaller side. Where that is 256 or more and the other side half as long again, three iterations,
// then two, run on g alone, g = p g p with p = a I + b g + c g^2, and x meets the product of their polynomials once: of
// 2048 x 8192 two thirds of the work, of which a GPU saves half of what is symmetric. g is made from x again in between
// because its rounding errors grow by up to a^2 an iteration, beside eigenvalues that may be small: with one pass over
// all five, matrices of one large singular value diverge. The error against f32 is that of plain iterations in bf16, 1%
// to 2% of the norm, for random matrices. It is larger for spectra that fall off steadily, up to 3% instead of 1%, and
// for one large singular value, up to 19%, where plain iterations emulated on a CPU have 11%.
void orthogonalize(const Tensor& x);

}  // namespace quench::nn
