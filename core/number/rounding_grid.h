#pragma once
// Grid of the values that a group of weights can take under one scale, with rounding moved by an offset. Bit-identical
// on host and device.

#include <math.h>  // NOLINT: rintf of host and device

#include "core/number/affine_int.h"
#include "core/number/e8m0.h"
#include "core/number/element_format.h"
#include "core/number/nvfp4.h"

namespace quench {

enum class GridKind : std::uint8_t {
  integers,
  floats,  // e4m3 under a scale of `stored`
  mx,      // scales are powers of two
  nvfp4,   // e4m3 scales under a global one
};

struct GridForm {
  GridKind kind = GridKind::integers;
  ElementFormat element = ElementFormat::e4m3;  // but of integers
  int bits = 8;                                 // integers
  IntMapping mapping = IntMapping::symmetric;   // integers, whose zero points are integers
  DType stored = DType::f32;                    // scales of integers and floats
  float global = 1;                             // NVFP4

  [[nodiscard]] QUENCH_HOST_DEVICE constexpr bool symmetric() const noexcept {
    return kind != GridKind::integers || mapping == IntMapping::symmetric ||
           mapping == IntMapping::symmetric_no_clipping;
  }
  // Powers of two: too coarse for small changes of a bound.
  [[nodiscard]] QUENCH_HOST_DEVICE constexpr bool continuous() const noexcept { return kind != GridKind::mx; }
  [[nodiscard]] QUENCH_HOST_DEVICE constexpr float steps() const noexcept {
    return static_cast<float>((1 << bits) - 1);
  }
};

// As stored.
struct GridScale {
  float scale = 1;
  float zero_point = 0;   // integers
  std::uint8_t byte = 0;  // e8m0 and e4m3 scales

  // Value of a code without zero point, rounded as unpack() rounds.
  [[nodiscard]] QUENCH_HOST_DEVICE constexpr float value(float code) const noexcept {
    return (code + zero_point) * scale - zero_point * scale;
  }
};

// Nearest code of w / scale + offset * step, step: distance of codes there.
struct GridCode {
  float code;   // without zero point
  bool inside;  // not clipped
};

// By element class; integers: Int8Code.
template <class Element>
class GridRounding {
 public:
  QUENCH_HOST_DEVICE explicit constexpr GridRounding(const GridForm&) {}
  [[nodiscard]] QUENCH_HOST_DEVICE GridCode operator()(float scaled, float offset, float /*zero_point*/) const {
    const float moved = scaled + offset * step(scaled);
    return {Element::decode(Element::encode(moved)), fabsf(moved) <= Element::kMax};
  }
  // low <= 0 <= high. Rounded to the stored dtype.
  [[nodiscard]] QUENCH_HOST_DEVICE static constexpr GridScale scale(const GridForm& form, float low, float high) {
    const float amax = -low > high ? -low : high;
    GridScale made;
    if (form.kind == GridKind::mx) {
      made.byte = mx_scale<Element>(amax, MxScaleMode::rceil);
      made.scale = decode_e8m0(made.byte);
    } else if (form.kind == GridKind::nvfp4) {
      made.byte = nvfp4_block_scale(amax, form.global).code;
      made.scale = form.global * E4m3::decode(made.byte);
    } else {
      made.scale = amax > 0 ? stored_scale(amax / Element::kMax, form.stored) : 1.0f;
    }
    return made;
  }

 private:
  // Distance of codes in the binade; subnormals have that of the smallest normal.
  QUENCH_HOST_DEVICE static constexpr float step(float scaled) {
    constexpr int kSmallestExponent = 1 - ((1 << (Element::kBits - Element::kMantissaBits - 2)) - 1);
    int exponent = static_cast<int>(bit_cast<std::uint32_t>(scaled) >> 23 & 0xFF) - 127;
    exponent = exponent < kSmallestExponent       ? kSmallestExponent
               : exponent > Element::kMaxExponent ? Element::kMaxExponent
                                                  : exponent;
    return bit_cast<float>(static_cast<std::uint32_t>(exponent - Element::kMantissaBits + 127) << 23);
  }
};

template <>
class GridRounding<Int8Code> {
 public:
  QUENCH_HOST_DEVICE explicit constexpr GridRounding(const GridForm& form)
      : lowest_(static_cast<float>(int_range(form.bits).lowest)),
        highest_(static_cast<float>(int_range(form.bits).highest)) {}
  [[nodiscard]] QUENCH_HOST_DEVICE GridCode operator()(float scaled, float offset, float zero_point) const {
    const float code = rintf(scaled + offset) + zero_point;
    const float kept = code < lowest_ ? lowest_ : code > highest_ ? highest_ : code;
    return {kept - zero_point, code >= lowest_ && code <= highest_};
  }
  [[nodiscard]] QUENCH_HOST_DEVICE static GridScale scale(const GridForm& form, float low, float high) {
    const IntParameters made = int_parameters<float>(low, high, form.mapping, form.bits, form.stored, RoundEven());
    return {made.scale, made.zero_point};
  }

 private:
  struct RoundEven {
    QUENCH_HOST_DEVICE float operator()(float x) const { return rintf(x); }
  };
  float lowest_, highest_;
};

// Calls body.template operator()<Element>().
template <class Body>
void dispatch_grid(const GridForm& form, std::string_view op, Body&& body) {
  if (form.kind == GridKind::integers) return body.template operator()<Int8Code>();
  dispatch_element<E4m3, E2m3, E3m2, E2m1>(form.element, op, std::forward<Body>(body));
}

}  // namespace quench
