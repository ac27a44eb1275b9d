#pragma once
// Deterministic mode: bit-identical across runs and processes, without autotuning and order-varying sums. CPU kernels
// always are.

namespace quench {

// Set before the first op.
void set_deterministic(bool on) noexcept;
[[nodiscard]] bool deterministic() noexcept;

}  // namespace quench
