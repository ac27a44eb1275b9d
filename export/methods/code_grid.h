#pragma once
// Quantized values by element.

#include "export/schemes/quantized_weight.h"

namespace quench {

// Scale and zero point of one group.
struct GroupScale {
  float scale = 1;       // value = (code - zero_point) * scale
  float multiplier = 1;  // before rounding; 1 / scale up to rounding
  float zero_point = 0;  // integer types
};

// Writer into a QuantizedWeight. Thread-safe for different rows.
class CodeGrid {
 public:
  // `weight` has its final scheme, shape and scales (as of rtn()) and outlives the grid. No GGUF blocks, no
  // floating-point zero points.
  explicit CodeGrid(QuantizedWeight& weight);

  [[nodiscard]] GroupScale scale_of(std::int64_t row, std::int64_t column) const;
  // As rtn(), from `count` values; stored. ScaleSharing::group only.
  GroupScale choose(std::int64_t row, std::int64_t group, const float* values, std::int64_t count);
  // Stores the nearest value, returns it dequantized.
  float round(std::int64_t row, std::int64_t column, float value, const GroupScale& scale);

 private:
  [[nodiscard]] std::int64_t scale_index(std::int64_t row, std::int64_t column) const;

  QuantizedWeight& weight_;
  std::int64_t columns_;
  std::int64_t across_;  // per row
  float global_ = 1;
};

}  // namespace quench
