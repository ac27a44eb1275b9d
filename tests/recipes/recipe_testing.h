#pragma once
// Comparison of tensors, and rows of a conversion report.

#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "recipes/convert.h"
#include "tests/testing.h"

namespace quench::testing {

// Relative L2 distance of contiguous f32 tensors on the CPU.
inline double distance(const Tensor& a, const Tensor& b) {
  const auto n = static_cast<std::size_t>(a.numel());
  return relative_l2(std::span<const float>(a.data<float>(), n), std::span<const float>(b.data<float>(), n));
}

inline const recipes::LayerConversion& conversion_of(const std::vector<recipes::LayerConversion>& rows,
                                                     const std::string& name) {
  for (const recipes::LayerConversion& row : rows)
    if (row.name == name) return row;
  throw std::runtime_error("no layer " + name);
}

}  // namespace quench::testing
