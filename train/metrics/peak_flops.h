#pragma once
// Peak FLOP/s of known devices, for MFU.

#include <optional>
#include <string_view>

namespace quench {

// Dense bf16 FLOP/s by driver name, from the vendor's data sheet; without structured sparsity (twice that). nullopt for
// an unknown device.
[[nodiscard]] std::optional<double> bf16_peak_flops(std::string_view device_name) noexcept;

// The same for float8 GEMMs with f32 accumulation: twice the bf16 rate with float8 tensor cores (Ada, Hopper,
// Blackwell), else nullopt.
[[nodiscard]] std::optional<double> float8_peak_flops(std::string_view device_name) noexcept;

}  // namespace quench
