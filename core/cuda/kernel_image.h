#pragma once
// Whether the kernels compiled into this program run on a device.

namespace quench::cuda {

[[nodiscard]] bool has_kernels_for(int device) noexcept;

}  // namespace quench::cuda
