#pragma once
// Whether kernels must give the same bits on every run and in every process. On: no choice by timing, and the slower
// of two algorithms where the faster one sums in an order that changes. CPU kernels always do.

namespace quench {

// For the whole process; set before the first op. Off at start.
void set_deterministic(bool on) noexcept;
[[nodiscard]] bool deterministic() noexcept;

}  // namespace quench
