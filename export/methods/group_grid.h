#pragma once
// Grid of representable values of one group of weights, between bounds that a search or a tuner chooses.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>

#include "core/number/element_format.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

// As stored.
struct GridScale {
  float scale = 1;
  float zero_point = 0;   // integers
  std::uint8_t byte = 0;  // e8m0 and e4m3 scales

  // Value of a code without zero point, rounded as unpack() rounds.
  [[nodiscard]] float value(float code) const { return (code + zero_point) * scale - zero_point * scale; }
};

// Nearest code of w / scale + offset * step, step: distance of codes there.
struct GridCode {
  float code;
  bool inside;  // not clipped
};

class IntegerRounding {
 public:
  explicit IntegerRounding(int bits)
      : lowest_(static_cast<float>(int_range(bits).lowest)), highest_(static_cast<float>(int_range(bits).highest)) {}
  [[nodiscard]] GridCode operator()(float scaled, float offset, float zero_point) const {
    const float code = std::nearbyint(scaled + offset) + zero_point;
    return {std::clamp(code, lowest_, highest_) - zero_point, code >= lowest_ && code <= highest_};
  }

 private:
  float lowest_, highest_;
};

template <class Element>
class FloatRounding {
 public:
  [[nodiscard]] GridCode operator()(float scaled, float offset, float /*zero_point*/) const {
    const float moved = scaled + offset * step(scaled);
    return {Element::decode(Element::encode(moved)), std::abs(moved) <= Element::kMax};
  }

 private:
  // Distance of codes in the binade; subnormals have that of the smallest normal.
  static float step(float scaled) {
    constexpr int kLeastExponent = 1 - ((1 << (Element::kBits - Element::kMantissaBits - 2)) - 1);
    const int exponent = static_cast<int>(std::bit_cast<std::uint32_t>(scaled) >> 23 & 0xFF) - 127;
    return std::ldexp(1.0f, std::clamp(exponent, kLeastExponent, Element::kMaxExponent) - Element::kMantissaBits);
  }
};

class GroupGrid {
 public:
  // `weight`: as of rtn(), whose global scale and scale dtype apply. Requires grid_problem() == "".
  explicit GroupGrid(const QuantizedWeight& weight);

  [[nodiscard]] std::int64_t group_size() const noexcept { return size_; }
  [[nodiscard]] bool symmetric() const noexcept { return scheme_.symmetric(); }
  // Powers of two: too coarse for small changes of a bound.
  [[nodiscard]] bool continuous() const noexcept { return scheme_.scale != ScaleForm::e8m0; }
  [[nodiscard]] float steps() const noexcept { return static_cast<float>((1 << scheme_.bits) - 1); }
  // low <= 0 <= high. Rounded to the stored dtype.
  [[nodiscard]] GridScale scale(float low, float high) const;
  // Scale and zero point of group `index` of `weight`, which has the form of the constructor's.
  void store(QuantizedWeight& weight, std::int64_t index, const GridScale& scale) const;
  // Codes of the group from `first` on.
  void store(QuantizedWeight& weight, std::int64_t first, const float* codes, const GridScale& scale) const;

  // Calls body(rounding).
  template <class Body>
  void with_rounding(Body&& body) const {
    if (!scheme_.element) return body(IntegerRounding(scheme_.bits));
    dispatch_element<E4m3, E2m3, E3m2, E2m1>(*scheme_.element, "GroupGrid",
                                             [&]<class Element>() { body(FloatRounding<Element>()); });
  }

 private:
  OperandScheme scheme_;
  DType stored_;
  std::int64_t size_;
  float global_ = 1;
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
