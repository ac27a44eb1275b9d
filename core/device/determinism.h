#pragma once
// Whether kernels must give the same bits on every run and in every process. On: no algorithm is chosen by timing, and
// none sums in an order that varies. CPU kernels are deterministic in any case.

namespace quench {

// For the whole process; set before the first op. Off at start.
void set_deterministic(bool on) noexcept;
[[nodiscard]] bool deterministic() noexcept;

}  // namespace quench
