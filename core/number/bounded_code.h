#pragma once
// Integer codes of floats. Conversions of what an int cannot hold differ between processors; these do not.

namespace quench {

// Towards zero, after bounding to [low, high]; low for NaN.
[[nodiscard]] constexpr int bounded_code(float x, int low, int high) noexcept {
  if (!(x >= static_cast<float>(low))) return low;
  return x >= static_cast<float>(high) ? high : static_cast<int>(x);
}

}  // namespace quench
