#pragma once

namespace quench {

// Activation of the gate in a gated feed-forward layer: activation(gate) * up.
enum class GatedActivation {
  silu,      // SwiGLU
  gelu_tanh  // GeGLU with the tanh approximation (Hendrycks and Gimpel, 2016, arXiv:1606.08415, section 2)
};

}  // namespace quench
