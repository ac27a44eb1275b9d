#pragma once
// Grid of representable values of one group of weights, between bounds that a search or a tuner chooses.

#include <cstdint>
#include <string>

#include "core/number/rounding_grid.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

class GroupGrid {
 public:
  // `weight`: as of rtn(), whose global scale and scale dtype apply. Requires grid_problem() == "".
  explicit GroupGrid(const QuantizedWeight& weight);

  [[nodiscard]] const GridForm& form() const noexcept { return form_; }
  [[nodiscard]] std::int64_t group_size() const noexcept { return size_; }
  // Scale and zero point of group `index` of `weight`, which has the form of the constructor's.
  void store(QuantizedWeight& weight, std::int64_t index, const GridScale& scale) const;
  // Codes of the group from `first` on.
  void store(QuantizedWeight& weight, std::int64_t first, const float* codes, const GridScale& scale) const;

 private:
  GridForm form_;
  std::int64_t size_;
};

// Reason for refusal, or "": blocks of GGUF, zero points that are no integers, scales of more than one row.
[[nodiscard]] std::string grid_problem(const OperandScheme& scheme, std::string_view method);

// Bounds of a group: 0, amax or minimum and maximum with 0.
struct GroupBounds {
  float low = 0, high = 0;
};
[[nodiscard]] GroupBounds bounds_of(const float* values, std::int64_t count);

// Factor of the bounds with the least squared error, each column times `importance` (null: 1), of a fixed list with 1.
// NVFP4: values of the largest code 6, 4 and between.
[[nodiscard]] float best_factor(const GroupGrid& grid, const float* values, const float* importance,
                                const GroupBounds& bounds);

}  // namespace quench
