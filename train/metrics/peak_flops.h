#pragma once
// Peak FLOP/s of GPUs, for model FLOPs utilization (MFU).

#include <optional>
#include <string_view>

namespace quench {

// Dense bf16 FLOP/s by driver name, from data sheets, without structured sparsity. nullopt for an unknown device.
[[nodiscard]] std::optional<double> bf16_peak_flops(std::string_view device_name) noexcept;

// float8 GEMMs with f32 accumulation: twice bf16 on float8 tensor cores (Ada, Hopper, Blackwell), else nullopt.
[[nodiscard]] std::optional<double> float8_peak_flops(std::string_view device_name) noexcept;

}  // namespace quench
