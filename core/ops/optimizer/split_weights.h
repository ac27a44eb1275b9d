#pragma once
// Master weights as bf16 parameters and their missing bits (core/number/split_f32.h).

#include "core/tensor/tensor.h"

namespace quench {

// Contiguous tensors of one shape on any devices; computed on the host. `values`: f32; `upper`: bf16; `low`: i16. The
// result is in host memory.
[[nodiscard]] Tensor join_weights(const Tensor& upper, const Tensor& low);
// Writes `upper` and `low`.
void split_weights(const Tensor& values, const Tensor& upper, const Tensor& low);

}  // namespace quench
