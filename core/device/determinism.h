#pragma once
// Deterministic mode: bit-identical results across runs and processes; no autotuning and no order-varying sums. CPU
// kernels are always deterministic.

namespace quench {

// Process-wide; set before the first op. Default: off.
void set_deterministic(bool on) noexcept;
[[nodiscard]] bool deterministic() noexcept;

}  // namespace quench
