#pragma once
// Float8 scheme of a linear layer's three GEMMs: scaling with the semantics of TorchAO's float8 training.

#include <optional>
#include <string_view>

#include "core/number/element_format.h"

namespace quench::recipes {

// Tensorwise, or one scale per index that is not reduced.
enum class Float8Scaling { tensor, row };

struct Float8Operand {
  ElementFormat element = ElementFormat::e4m3;
  Float8Scaling scaling = Float8Scaling::tensor;
};

struct Float8Product {
  Float8Operand left, right;
  // Accumulation in the tensor core's own accumulator.
  bool fast_accumulation = false;
};

// y [M,N] = x [M,K] W [N,K]^T. A GEMM without a value runs in high precision.
struct Float8Scheme {
  std::string_view name;
  std::optional<Float8Product> forward;  // reduction over K
  std::optional<Float8Product> dgrad;    // reduction over N
  std::optional<Float8Product> wgrad;    // reduction over M
  bool power_of_two_scales = false;
};

}  // namespace quench::recipes
