#pragma once
// Codes in which low-bit optimizers keep their moments: entries of a table times the scale of a block of elements.
//
// The tables are the dynamic maps of Dettmers et al., "8-bit Optimizers via Block-wise Quantization" (2022,
// arXiv:2110.02861), in the form that TorchAO's optimizers use.

#include <cstdint>

#include "core/number/host_device.h"

namespace quench {

enum class MomentFormat : std::uint8_t {
  int8,  // 256 entries, a byte an element
  int4,  // 16 entries, two elements a byte, even index in the high nibble
  fp8,   // float8 e4m3 itself, no table
};

// Neighbouring elements that share a scale.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr std::int64_t moment_block(MomentFormat format) noexcept {
  return format == MomentFormat::int4 ? 128 : 256;
}

// A number y in [-1, 1] gets the largest code whose threshold is not above y: that of the nearest value, the upper one
// in the middle between two.
struct MomentTable {
  int size = 0;
  float values[256] = {};      // ascending
  float thresholds[256] = {};  // thresholds[0] is -infinity
};

// For int8 and int4: signed for the first moment, unsigned for the second, which is never negative. The unsigned table
// of int4 has no zero, so that no denominator vanishes.
[[nodiscard]] const MomentTable& moment_table(MomentFormat format, bool is_signed);

// The scale of a block is its largest magnitude, at least this, times moment_scale_factor.
inline constexpr float kLeastMomentMagnitude = 1e-12f;
// fp8: the largest magnitude becomes e4m3's 448.
[[nodiscard]] QUENCH_HOST_DEVICE constexpr float moment_scale_factor(MomentFormat format) noexcept {
  return format == MomentFormat::fp8 ? 1.0f / 448.0f : 1.0f;
}

}  // namespace quench
