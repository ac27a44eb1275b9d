#pragma once
// Integer quantization (quantize_int.h).

#include "core/cuda/quantize/quantize_common.cuh"
#include "core/ops/quantize/quantize_int.h"

namespace quench::cuda {

// NaN propagates; the sign of zero does not affect scales.
__device__ inline float lesser_or_nan(float a, float b) {
  float result;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}
__device__ inline float greater_or_nan(float a, float b) {
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
  return result;
}

// Stored words; bf16: even and odd elements apart.
template <class T>
struct Extremes {
  std::uint32_t least, most;

  __device__ static Extremes none() {
    return sizeof(T) == 4 ? Extremes{0x7F800000u, 0xFF800000u} : Extremes{0x7F807F80u, 0xFF80FF80u};
  }
  __device__ static Extremes of(T value) {
    if constexpr (sizeof(T) == 4) {
      return {__float_as_uint(value), __float_as_uint(value)};
    } else {
      const std::uint32_t word = value.bits * 0x00010001u;
      return {word, word};
    }
  }
  __device__ void widen(const Extremes& other) {
    if constexpr (sizeof(T) == 4) {
      least = __float_as_uint(lesser_or_nan(__uint_as_float(least), __uint_as_float(other.least)));
      most = __float_as_uint(greater_or_nan(__uint_as_float(most), __uint_as_float(other.most)));
    } else {
      asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(least) : "r"(least), "r"(other.least));
      asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(most) : "r"(most), "r"(other.most));
    }
  }
  __device__ void widen(const PackedPiece<T>& piece) {
#pragma unroll
    for (const std::uint32_t word : piece.words) widen(Extremes{word, word});
  }
  __device__ float smallest() const {
    if constexpr (sizeof(T) == 4) return __uint_as_float(least);
    const float2 pair = unpack_pair<bfloat16>(least);
    return lesser_or_nan(pair.x, pair.y);
  }
  __device__ float largest() const {
    if constexpr (sizeof(T) == 4) return __uint_as_float(most);
    const float2 pair = unpack_pair<bfloat16>(most);
    return greater_or_nan(pair.x, pair.y);
  }
};

// Warp collective over kLanes adjacent lanes, result in each.
template <int kLanes, class T>
__device__ Extremes<T> over_lanes(Extremes<T> own) {
#pragma unroll
  for (int offset = 1; offset < kLanes; offset *= 2)
    own.widen(
        Extremes<T>{__shfl_xor_sync(0xFFFFFFFFu, own.least, offset), __shfl_xor_sync(0xFFFFFFFFu, own.most, offset)});
  return own;
}

struct IntScheme {
  IntMapping mapping;
  int bits;
  DType stored;
  bool divides;

  explicit IntScheme(const IntQuantOptions& options)
      : mapping(options.mapping),
        bits(options.bits),
        stored(options.scale_dtype.value_or(DType::f32)),
        divides(options.division == IntDivision::quotient) {}
  template <class T>
  __device__ IntParameters choose(const Extremes<T>& of) const {
    return int_parameters<T>(of.smallest(), of.largest(), mapping, bits, stored, [](float x) { return rintf(x); });
  }
};

// How codes follow from values.
enum class CodeRule : std::uint8_t { integers, floats, signs, odds };
__device__ inline CodeRule rule_of(IntMapping mapping) {
  return mapping == IntMapping::float_zero_point ? CodeRule::floats
         : mapping == IntMapping::binary         ? CodeRule::signs
         : mapping == IntMapping::stretched      ? CodeRule::odds
                                                 : CodeRule::integers;
}

struct IntConverter {
  float scale, reciprocal, zero_point, lowest, highest, bottom;
  CodeRule rule;
  bool divides;

  __device__ IntConverter(const IntParameters& p, const IntScheme& scheme)
      : scale(p.scale),
        reciprocal(1.0f / p.scale),
        zero_point(p.zero_point),
        lowest(static_cast<float>(int_range(scheme.bits, scheme.mapping).lowest)),
        highest(static_cast<float>(int_range(scheme.bits, scheme.mapping).highest)),
        bottom(p.zero_point + lowest * p.scale),
        rule(rule_of(scheme.mapping)),
        divides(scheme.divides) {}

  // Unclamped; the addition maps -0 to 0.
  template <CodeRule kRule>
  __device__ float rounded(float x) const {
    const auto nearest = [](float v) { return rintf(v); };
    if constexpr (kRule == CodeRule::floats) return rintf((x - bottom) / scale) + lowest;
    if constexpr (kRule == CodeRule::signs) return code_of(x, IntMapping::binary, nearest);
    if constexpr (kRule == CodeRule::odds) return code_of(x * reciprocal, IntMapping::stretched, nearest);
    if (divides) return rintf(quotient(x) + zero_point) + 0.0f;
    return rintf(x * reciprocal) + zero_point;
  }
  // x / scale, correctly rounded (Markstein) without nvcc's branch. The remainder is NaN for an infinite scale or NaN.
  __device__ float quotient(float x) const {
    const float near = x * reciprocal, rest = __fmaf_rn(-near, scale, x);
    return rest == rest ? __fmaf_rn(rest, reciprocal, near) : near;
  }
  // NaN propagates.
  __device__ float clamped(float code) const { return lesser_or_nan(greater_or_nan(code, lowest), highest); }
  template <CodeRule kRule>
  __device__ float value(float code) const {
    return kRule == CodeRule::floats ? code * scale + zero_point : (code - zero_point) * scale;
  }

  // 0 for NaN (whose scale is NaN).
  template <CodeRule kRule>
  __device__ float code(float x) const {
    const float code = clamped(rounded<kRule>(x));
    return code != code ? 0.0f : code;
  }
  // Dequantized value; true if it was in range.
  template <CodeRule kRule>
  __device__ bool fake(float& x) const {
    const float code = rounded<kRule>(x), inside = clamped(code);
    const bool in_range = kRule == CodeRule::signs ? x >= -scale && x <= scale : inside == code;
    x = value<kRule>(inside);
    return in_range;
  }
};

// By element; false: mask bit 0.
struct ToCode {
  template <CodeRule kRule>
  __device__ static bool apply(const IntConverter& convert, float& x) {
    x = convert.code<kRule>(x);
    return true;
  }
};
struct ToValue {
  template <CodeRule kRule>
  __device__ static bool apply(const IntConverter& convert, float& code) {
    code = convert.value<kRule>(code);
    return true;
  }
};
struct ToFake {
  template <CodeRule kRule>
  __device__ static bool apply(const IntConverter& convert, float& x) {
    return convert.fake<kRule>(x);
  }
};

// Vector within a group; bit i: element i's mask.
template <class Body, CodeRule kRule>
__device__ std::uint32_t apply_as(const IntConverter& convert, Piece& piece) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) bits |= Body::template apply<kRule>(convert, piece[i]) ? 1u << i : 0u;
  return bits;
}
// `kFewLevels`: has_few_levels() of the mapping; kernels of their own cost the others no registers.
template <class Body, bool kFewLevels>
__device__ std::uint32_t apply_to(const IntConverter& convert, Piece& piece) {
  if constexpr (kFewLevels) {
    if (convert.rule == CodeRule::signs) return apply_as<Body, CodeRule::signs>(convert, piece);
    if (convert.rule == CodeRule::odds) return apply_as<Body, CodeRule::odds>(convert, piece);
  } else if (convert.rule == CodeRule::floats) {
    return apply_as<Body, CodeRule::floats>(convert, piece);
  }
  return apply_as<Body, CodeRule::integers>(convert, piece);
}
template <class Body, bool kFewLevels>
__device__ bool apply_to(const IntConverter& convert, float& x) {
  if constexpr (kFewLevels) {
    if (convert.rule == CodeRule::signs) return Body::template apply<CodeRule::signs>(convert, x);
    if (convert.rule == CodeRule::odds) return Body::template apply<CodeRule::odds>(convert, x);
  } else if (convert.rule == CodeRule::floats) {
    return Body::template apply<CodeRule::floats>(convert, x);
  }
  return Body::template apply<CodeRule::integers>(convert, x);
}

}  // namespace quench::cuda
