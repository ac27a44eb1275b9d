#pragma once
// 2:4 sparsity of weights (core/number/sparsity_2_4.h).

#include <string>

#include "core/device/kernel_slot.h"
#include "core/number/sparsity_2_4.h"
#include "core/tensor/tensor.h"

namespace quench {

// out = x where kept, else 0. Contiguous [R,C], f32, bf16 or f16; out may alias x. C % 4 == 0, and R with
// Sparsity24::transposable.
struct Prune24Args {
  Tensor x, out;
  Sparsity24 rule = Sparsity24::magnitude;
};
extern constinit KernelSlot<Prune24Args> prune_2_4_slot;
void prune_2_4(const Prune24Args& args);
[[nodiscard]] Tensor pruned_2_4(const Tensor& x, Sparsity24 rule);

// Reason that a shape cannot be sparse, or "".
[[nodiscard]] std::string sparsity_2_4_problem(Sparsity24 rule, std::int64_t rows, std::int64_t columns);

}  // namespace quench
