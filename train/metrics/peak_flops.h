#pragma once
// Peak rates of known devices, for model FLOPs utilisation (MFU).

#include <optional>
#include <string_view>

namespace quench {

// Dense bf16 matrix FLOP/s of a device by the name its driver gives it, from the vendor's data sheet; never the figure
// with structured sparsity, which is twice that. Nothing for a device that is not known.
[[nodiscard]] std::optional<double> bf16_peak_flops(std::string_view device_name) noexcept;

}  // namespace quench
