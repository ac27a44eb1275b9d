#pragma once
// Special values of f32.

#include <limits>

namespace quench::testing {

inline constexpr float kInf = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace quench::testing
