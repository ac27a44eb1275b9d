#pragma once
// Dimensions or strides, at most eight.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/system/check.h"

namespace quench {

class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;  // scalar
  Shape(std::initializer_list<std::int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const std::int64_t> dims) {
    QUENCH_CHECK(dims.size() <= kMaxRank, "Shape: rank {} exceeds {}", dims.size(), kMaxRank);
    for (const std::int64_t d : dims) push_back(d);
  }

  [[nodiscard]] int rank() const noexcept { return rank_; }
  // Negative axes count from the end.
  [[nodiscard]] std::int64_t operator[](int axis) const { return dims_[normalize(axis)]; }
  [[nodiscard]] std::int64_t& operator[](int axis) { return dims_[normalize(axis)]; }
  [[nodiscard]] const std::int64_t* begin() const noexcept { return dims_.data(); }
  [[nodiscard]] const std::int64_t* end() const noexcept { return dims_.data() + rank_; }
  void push_back(std::int64_t dim) {
    QUENCH_CHECK(rank_ < kMaxRank, "Shape: rank exceeds {}", kMaxRank);
    dims_[static_cast<std::size_t>(rank_++)] = dim;
  }

  // 1 for rank 0; throws on negative dimensions or 64-bit overflow.
  [[nodiscard]] std::int64_t numel() const;
  // Elements.
  [[nodiscard]] Shape contiguous_strides() const;
  // "[2, 3]"
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b) noexcept {
    if (a.rank_ != b.rank_) return false;
    for (int i = 0; i < a.rank_; ++i)
      if (a.dims_[static_cast<std::size_t>(i)] != b.dims_[static_cast<std::size_t>(i)]) return false;
    return true;
  }

 private:
  [[nodiscard]] std::size_t normalize(int axis) const {
    const int positive = axis < 0 ? axis + rank_ : axis;
    QUENCH_CHECK(positive >= 0 && positive < rank_, "Shape: axis {} outside rank {}", axis, rank_);
    return static_cast<std::size_t>(positive);
  }

  std::array<std::int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace quench
