#pragma once
// Deterministic mode: bit-identical across runs and processes, without autotuning and order-varying sums. CPU kernels
// always are.

namespace quench {

// Set before the first op.
void set_deterministic(bool on) noexcept;
[[nodiscard]] bool deterministic() noexcept;

// Batch-invariant mode: a row of the result of a forward op depends on that row and its sequence alone, bit for bit,
// not on the number of other rows, so that sampling and training give a token the same log-probability. Summation
// orders of GEMMs are those of one pass over K; attention in bf16 of heads up to 128 has kernels for it, others are
// slower. Ops of tensorwise scales and training steps are not covered. Set before the first op.
void set_batch_invariant(bool on) noexcept;
[[nodiscard]] bool batch_invariant() noexcept;

}  // namespace quench
