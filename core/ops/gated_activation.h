#pragma once
// Activations of gated feed-forward layers.

namespace quench {

// Activation of the gate in a gated feed-forward layer: activation(gate) * up.
enum class GatedActivation {
  silu,      // SwiGLU
  gelu_tanh  // GeGLU with the tanh approximation (Hendrycks and Gimpel, 2016, arXiv:1606.08415, section 2)
};

// Both, for dispatch and tests.
inline constexpr GatedActivation kGatedActivations[] = {GatedActivation::silu, GatedActivation::gelu_tanh};

// Unit of gpt-oss: g * sigmoid(slope * g) * (u + 1) with g = min(gate, limit) and u = up clamped to [-limit, limit]. A
// value at its bound has the gradient of one within.
struct ClampedUnit {
  float slope = 1.702f;
  float limit = 7.0f;  // > 0
};

}  // namespace quench
