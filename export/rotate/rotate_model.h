#pragma once
// Rotation of a model's weights (QuaRot, arXiv:2404.00456; SpinQuant, arXiv:2405.16406, R1 and R2): outliers of
// activations and weights spread over all channels, and the model computes the same. No operation is added.

#include <cstdint>
#include <string>

#include "nn/decoder/causal_lm.h"

namespace quench {

// Reason in the config why a model cannot be rotated, or "".
[[nodiscard]] std::string rotation_problem(const nn::ModelConfig& config);

struct ModelRotation {
  bool hadamard = false;         // matrix of the residual stream; else a random orthogonal one
  std::uint64_t head_bytes = 0;  // size of the head that a tied model gets; 0: it has one
};

// Norms of the stream become 1, their weights factors of the layers after them; the stream is multiplied by an
// orthogonal matrix (R1), values of each head by another (R2), a pair of matrices in the layers that write and read
// them. A tied head becomes a weight of its own. Products in f64, rounded once to the weights' dtype; the same for each
// run. Unsharded models in high precision, without adapters. Throws unsupported as rotation_problem(), and naming a
// parameter without a rule, with the model unchanged.
ModelRotation rotate_model(nn::CausalLm& model);

}  // namespace quench
