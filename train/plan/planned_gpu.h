#pragma once
// GPUs by name, for estimates on machines that do not have them.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace quench {

struct PlannedGpu {
  std::string_view name;      // as the driver names it, after "NVIDIA" and "GeForce"
  std::int64_t gigabytes;     // as it is sold
  std::int64_t memory_bytes;  // as nvidia-smi lists it

  [[nodiscard]] std::string title() const;  // "A100 80GB"
};

// True for the name, as the driver writes it, of a GPU of compute capability 9.0.
[[nodiscard]] bool is_hopper(std::string_view driver_name) noexcept;

// By memory.
[[nodiscard]] std::span<const PlannedGpu> planned_gpus() noexcept;

// By name, with or without maker, "RTX" and memory size, in any case: "RTX 4090", "nvidia a100-80gb", "H100". Throws
// bad_config with the list for an unknown GPU, and for one that is sold with two sizes and named without.
[[nodiscard]] const PlannedGpu& require_planned_gpu(std::string_view text);

}  // namespace quench
