#pragma once
// Rates of GPUs within a training step, by device, with the source of each figure: the basis of predicted step times.

#include <optional>
#include <span>
#include <string_view>

#include "train/plan/planned_gpu.h"

namespace quench {

// Rates of a device within a training step, lower than those of isolated kernels.
struct DeviceRates {
  std::string_view device;       // substring of the driver name
  double bf16_flops;             // GEMMs of linear layers and head, FLOP/s
  double float8_flops;           // 0: no float8 tensor cores
  double attention_flops;        // head dim >= 128, causal FLOPs counted once
  double narrow_attention;       // the same with smaller head dims
  double memory_bytes;           // memory-bound kernels, read plus write, bytes/s
  double gather_bytes;           // intra-node all-gather: bytes sent per rank, bytes/s
  double reduce_bytes;           // reduce-scatter and all-reduce
  double seconds_per_sent_byte;  // slowdown of overlapped computation by NCCL: CTAs, memory, power
  std::string_view source;       // where the rates were measured, or what they are assumed from
};

// Measured devices.
[[nodiscard]] std::span<const DeviceRates> measured_rates() noexcept;
// nullptr for a device without measurements.
[[nodiscard]] const DeviceRates* device_rates(std::string_view device_name) noexcept;

// Measured rates; for another GPU the published peaks of its tensor cores, memory and links, times the share of the
// peak that an H200 reaches in a step.
[[nodiscard]] DeviceRates planned_rates(const PlannedGpu& gpu);

}  // namespace quench
