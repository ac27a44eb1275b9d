#pragma once
// Peak rates of known devices, for model FLOPs utilisation (MFU).

#include <optional>
#include <string_view>

namespace quench {

// Dense bf16 matrix FLOP/s of a device by the name its driver gives it, from the vendor's data sheet; never the figure
// with structured sparsity, which is twice that. Nothing for a device that is not known.
[[nodiscard]] std::optional<double> bf16_peak_flops(std::string_view device_name) noexcept;

// The same for products of float8 operands with f32 accumulation: twice the bf16 rate where there are such tensor cores
// (Ada, Hopper, Blackwell), nothing elsewhere.
[[nodiscard]] std::optional<double> float8_peak_flops(std::string_view device_name) noexcept;

}  // namespace quench
