#pragma once
// The codes of a quantized weight, element by element: what algorithms need that choose codes one at a time.

#include "export/schemes/quantized_weight.h"

namespace quench {

// The values that codes of one group may have.
struct GroupScale {
  float scale = 1;       // value = (code - zero_point) * scale
  float multiplier = 1;  // to the scaled value that is rounded; 1 / scale up to rounding
  float zero_point = 0;  // of integers
};

// Writes into the codes and scales of a QuantizedWeight by rows and columns. Different rows may be written at once.
class CodeGrid {
 public:
  // `weight` has its final scheme, shape and scales (those of rtn()), and outlives the grid. No blocks of
  // GGUF, no zero points that are floats.
  explicit CodeGrid(QuantizedWeight& weight);

  [[nodiscard]] GroupScale scale_of(std::int64_t row, std::int64_t column) const;
  // Chooses and stores the scale of a group of a row as rtn() does, from `count` values. For
  // ScaleSharing::group alone.
  GroupScale choose(std::int64_t row, std::int64_t group, const float* values, std::int64_t count);
  // Stores the code nearest to `value` and returns the value that it stands for.
  float round(std::int64_t row, std::int64_t column, float value, const GroupScale& scale);

 private:
  [[nodiscard]] std::int64_t scale_index(std::int64_t row, std::int64_t column) const;

  QuantizedWeight& weight_;
  std::int64_t columns_;
  std::int64_t across_;  // scales of a row
  float global_ = 1;
};

}  // namespace quench
