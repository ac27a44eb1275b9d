#include "core/tensor/shape.h"

namespace quench {

std::int64_t Shape::numel() const {
  // Zero first: [0, 2^62, 4] is valid and empty.
  for (const std::int64_t d : *this) {
    QUENCH_CHECK(d >= 0, "Shape: negative dimension in {}", to_string());
    if (d == 0) return 0;
  }
  std::int64_t product = 1;
  for (const std::int64_t d : *this)
    QUENCH_CHECK(!__builtin_mul_overflow(product, d, &product), "Shape: element count of {} overflows", to_string());
  return product;
}

Shape Shape::contiguous_strides() const {
  Shape strides = *this;
  std::int64_t step = 1;
  for (int i = rank_ - 1; i >= 0; --i) {
    strides[i] = step;
    // Only empty shapes overflow; their strides are irrelevant.
    if ((*this)[i] > 0 && __builtin_mul_overflow(step, (*this)[i], &step)) step = 1;
  }
  return strides;
}

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string((*this)[i]);
  return text + "]";
}

}  // namespace quench
