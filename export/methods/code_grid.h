#pragma once
// Element-wise access to quantized values, for methods that quantize one element at a time.

#include "export/schemes/quantized_weight.h"

namespace quench {

// Quantization parameters of one group.
struct GroupScale {
  float scale = 1;       // value = (code - zero_point) * scale
  float multiplier = 1;  // factor before rounding; 1 / scale up to rounding
  float zero_point = 0;  // integer types
};

// Writer into a QuantizedWeight's values and scales by row and column. Thread-safe for different rows.
class CodeGrid {
 public:
  // `weight` must have its final scheme, shape and scales (as of rtn()) and outlive the grid. No GGUF blocks, no
  // floating-point zero points.
  explicit CodeGrid(QuantizedWeight& weight);

  [[nodiscard]] GroupScale scale_of(std::int64_t row, std::int64_t column) const;
  // Chooses and stores the scale of a row's group as rtn() does, from `count` values. ScaleSharing::group only.
  GroupScale choose(std::int64_t row, std::int64_t group, const float* values, std::int64_t count);
  // Stores the nearest quantized value and returns it dequantized.
  float round(std::int64_t row, std::int64_t column, float value, const GroupScale& scale);

 private:
  [[nodiscard]] std::int64_t scale_index(std::int64_t row, std::int64_t column) const;

  QuantizedWeight& weight_;
  std::int64_t columns_;
  std::int64_t across_;  // scales per row
  float global_ = 1;
};

}  // namespace quench
