#pragma once
// A float8 scheme: which operands of a linear layer's three products are quantized, to which format, under how many
// scales. Scales are made anew from each tensor (dynamic scaling); semantics are those of TorchAO's float8 training.

#include <optional>
#include <string_view>

#include "core/number/element_format.h"

namespace quench::recipes {

// How many scales an operand has: one, or one for each index that the product keeps (every row of x in x W^T, every
// column of x in dy^T x).
enum class Float8Scaling { tensor, row };

struct Float8Operand {
  ElementFormat element = ElementFormat::e4m3;
  Float8Scaling scaling = Float8Scaling::tensor;
};

struct Float8Product {
  Float8Operand left, right;
  // Partial sums in the tensor core's own accumulator (core/ops/scaled_gemm.h). A run's options set it.
  bool fast_accumulation = false;
};

// y [M,N] = x [M,K] W [N,K]^T. A product without a value runs in high precision.
struct Float8Scheme {
  std::string_view name;
  std::optional<Float8Product> forward;  // x W^T, along K
  std::optional<Float8Product> dgrad;    // dy W, along N
  std::optional<Float8Product> wgrad;    // dy^T x, along M
  bool power_of_two_scales = false;
};

}  // namespace quench::recipes
