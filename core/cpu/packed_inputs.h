#pragma once
// Activations arranged for packed_ways.h.

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "core/cpu/packed_ways.h"
#include "core/tensor/tensor.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// x in fixed point.
template <class Way>
inline constexpr bool kFixedPoint = requires {
  Way::kUnit;
};

template <class Way>
std::int64_t blocks_of(std::int64_t depth) {
  return (depth + Way::kBlock - 1) / Way::kBlock;
}

template <class Way>
struct Inputs {
  static constexpr std::int64_t kBlock = kFixedPoint<Way> ? 2 * Way::kBlock : Way::kBlock;  // elements of x

  const typename Way::X* x;  // [rows][blocks][kBlock]
  std::int64_t blocks;
  // Fixed point: scales per lane [rows][blocks][kLanes]; nonzero low parts [rows][blocks].
  const float* scales;
  const std::uint8_t* low;

  [[nodiscard]] std::int64_t stride() const { return blocks * kBlock; }
  [[nodiscard]] Inputs from(std::int64_t row) const {
    if constexpr (kFixedPoint<Way>)
      return {x + row * stride(), blocks, scales + row * blocks * kLanes, low + row * blocks};
    return {x + row * stride(), blocks, nullptr, nullptr};
  }
};

// Scales the amax to 15 bits; NaN if any element is not finite.
template <class T>
float fixed_point_factor(const T* x, std::int64_t count) {
  float largest = 0;
  bool finite = true;
  for (std::int64_t i = 0; i < count; ++i) {
    const float magnitude = std::fabs(static_cast<float>(x[i]));
    finite = finite && magnitude < std::numeric_limits<float>::infinity();
    largest = std::max(largest, magnitude);
  }
  // Less precision below 2^-100 bounds the factor 2^(14 - exponent).
  const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(std::max(largest, 0x1p-100f)) >> 23);
  return finite ? std::bit_cast<float>(static_cast<std::uint32_t>(2 * 127 + 14 - exponent) << 23)
                : std::numeric_limits<float>::quiet_NaN();
}

template <class Way>
class ArrangedInputs {
 public:
  template <class T>
  ArrangedInputs(const T* x, std::int64_t rows, std::int64_t depth)
      : blocks_(blocks_of<Way>(depth)),
        x_(Tensor::empty({rows * blocks_ * Inputs<Way>::kBlock * std::int64_t{sizeof(X)}}, DType::u8)) {
    if constexpr (kFixedPoint<Way>) {
      scales_.resize(static_cast<std::size_t>(rows * blocks_ * kLanes));
      low_.resize(static_cast<std::size_t>(rows * blocks_));
    }
    auto* out = static_cast<X*>(x_.raw_data());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t block = 0; block < blocks_; ++block, out += Inputs<Way>::kBlock) {
        const std::int64_t first = block * Way::kBlock, count = std::min<std::int64_t>(Way::kBlock, depth - first);
        if constexpr (kFixedPoint<Way>)
          fix(x + r * depth + first, count, r * blocks_ + block, out);
        else
          put([&](int k) { return k < count ? static_cast<X>(x[r * depth + first + k]) : X{}; }, out);
      }
  }

  [[nodiscard]] Inputs<Way> view() const {
    return {static_cast<const X*>(x_.raw_data()), blocks_, scales_.data(), low_.data()};
  }

 private:
  using X = typename Way::X;

  template <class Element>
  static void put(const Element& element, X* out) {
    for (int vector = 0; vector < Way::kVectors; ++vector)
      for (int position = 0; position < Way::kWidth; ++position) *out++ = element(Way::element(vector, position));
  }

  // x = scale * (high + low / kLowParts).
  template <class T>
  void fix(const T* x, std::int64_t count, std::int64_t block, X* out) {
    X high[Way::kBlock], low[Way::kBlock];
    bool any_low = false;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int first = lane * Way::kPerLane;
      const std::int64_t valid = std::clamp<std::int64_t>(count - first, 0, Way::kPerLane);
      const float factor = fixed_point_factor(x + first, valid);
      scales_[static_cast<std::size_t>(block * kLanes + lane)] = Way::kUnit / factor;
      for (int i = first; i < first + Way::kPerLane; ++i) {
        const float value = i < count && factor > 0 ? static_cast<float>(x[i]) * factor : 0.0f;
        const float whole = std::nearbyintf(value), rest = std::nearbyintf((value - whole) * Way::kLowParts);
        high[i] = static_cast<X>(whole);
        low[i] = static_cast<X>(rest);
        any_low |= rest != 0;
      }
    }
    low_[static_cast<std::size_t>(block)] = any_low ? 1 : 0;
    put([&](int k) { return high[k]; }, out);
    put([&](int k) { return low[k]; }, out + Way::kBlock);
  }

  std::int64_t blocks_;
  Tensor x_;
  std::vector<float> scales_;
  std::vector<std::uint8_t> low_;
};

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
