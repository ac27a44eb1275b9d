// Integer casts by groups of the last axis.

#include "core/ops/quantize/quantize_int.h"

#include <cmath>
#include <limits>

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

struct IntRows {
  std::int64_t rows, columns, group, groups;  // per row

  IntRows(const Tensor& x, const IntQuantOptions& options)
      : columns(x.size(-1)), group(options.group_size == 0 ? columns : options.group_size), groups(columns / group) {
    rows = x.numel() / columns;
  }
};

template <class T>
IntParameters choose(const T* x, std::int64_t n, const IntQuantOptions& options, DType stored) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  F32 low = broadcast(kInfinity), high = broadcast(-kInfinity);
  I32 is_nan{};
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const F32 v = load(x + i, FullVector{});
    low = min(v, low);
    high = max(v, high);
    is_nan |= v != v;
  }
  float smallest = -reduce_max(-low), largest = reduce_max(high);
  for (int lane = 0; lane < kLanes; ++lane)
    if (is_nan[lane] != 0) smallest = largest = std::numeric_limits<float>::quiet_NaN();
  for (; i < n; ++i) {
    const float v = x[i];
    smallest = v < smallest || v != v ? v : smallest;
    largest = v > largest || v != v ? v : largest;
  }
  if (options.mapping == IntMapping::binary) {
    const float amax = -smallest > largest ? -smallest : largest;
    if (!std::isfinite(smallest) || !std::isfinite(largest)) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
    const FixedMagnitudes fixed(amax);
    std::int64_t sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += fixed(x[k]);
    return {binary_scale<T>(fixed.mean(sum, n), amax, stored), 0.0f};
  }
  return int_parameters<T>(smallest, largest, options.mapping, options.bits, stored,
                           [](float v) { return __builtin_nearbyintf(v); });
}

struct Converter {
  F32 scale, reciprocal, zero_point, lowest, highest, bottom;
  bool floats, divides, signs, odds;

  Converter(const IntParameters& p, const IntQuantOptions& options)
      : scale(broadcast(p.scale)),
        reciprocal(broadcast(1.0f / p.scale)),
        zero_point(broadcast(p.zero_point)),
        lowest(broadcast(static_cast<float>(int_range(options.bits, options.mapping).lowest))),
        highest(broadcast(static_cast<float>(int_range(options.bits, options.mapping).highest))),
        bottom(zero_point + lowest * scale),
        floats(options.mapping == IntMapping::float_zero_point),
        divides(options.division == IntDivision::quotient),
        signs(options.mapping == IntMapping::binary),
        odds(options.mapping == IntMapping::stretched) {}

  // Unclamped; the addition maps -0 to 0.
  [[nodiscard]] QUENCH_INLINE F32 rounded(F32 x) const {
    if (floats) return round_even((x - bottom) / scale) + lowest;
    const F32 one = broadcast(1.0f);
    if (signs) return select(x < F32{}, -one, select(x >= F32{}, one, x));
    if (odds) {  // code_of()
      const F32 half = x * reciprocal * broadcast(0.5f), near = round_even(half);
      return broadcast(2.0f) * (near - select(near > half, one, F32{})) + one;
    }
    if (divides) return round_even(x / scale + zero_point) + F32{};
    return round_even(x * reciprocal) + zero_point;
  }
  // Lanes that pass gradients on.
  [[nodiscard]] QUENCH_INLINE I32 in_range(F32 x, F32 code) const {
    if (signs) return (x >= -scale) & (x <= scale);
    return (code >= lowest) & (code <= highest);
  }
  // NaN propagates.
  [[nodiscard]] QUENCH_INLINE F32 clamped(F32 code) const {
    return select(code < lowest, lowest, select(code > highest, highest, code));
  }
  [[nodiscard]] QUENCH_INLINE F32 value(F32 code) const {
    return floats ? code * scale + zero_point : (code - zero_point) * scale;
  }
};

IntParameters given(const Tensor& scales, const Tensor& zero_points, std::int64_t at) {
  return {scales.data<float>()[at], zero_points.defined() ? zero_points.data<float>()[at] : 0.0f};
}

QUENCH_INLINE std::uint32_t lane_bits(I32 lanes) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(std::bit_cast<__m512i>(lanes), std::bit_cast<__m512i>(lanes));
#elif defined(__AVX2__)
  return static_cast<std::uint32_t>(_mm256_movemask_ps(std::bit_cast<__m256>(lanes)));
#elif defined(__aarch64__)
  const U32 bit_of_lane = {1, 2, 4, 8};
  return vaddvq_u32(std::bit_cast<uint32x4_t>(std::bit_cast<U32>(lanes) & bit_of_lane));
#else
  std::uint32_t bits = 0;
  for (int i = 0; i < kLanes; ++i) bits |= lanes[i] != 0 ? 1u << i : 0u;
  return bits;
#endif
}

// Mask bits from `at`, zero before.
QUENCH_INLINE void put_bits(std::uint8_t* mask, std::int64_t at, std::uint32_t bits, std::int64_t count) {
  const auto shift = static_cast<int>(at % 8);
  const std::uint32_t shifted = (bits & ((1u << count) - 1u)) << shift;
  std::uint8_t* to = mask + at / 8;
  for (int byte = 0; 8 * byte < shift + count; ++byte) to[byte] |= static_cast<std::uint8_t>(shifted >> (8 * byte));
}

// body(row, group in the row, first element, group index), rows in parallel.
template <class Body>
void for_groups(const IntRows& shape, const Body& body) {
  parallel_ranges(shape.rows, shape.rows * shape.columns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t g = 0; g < shape.groups; ++g)
        body(row, g, row * shape.columns + g * shape.group, row * shape.groups + g);
  });
}

void int_scales_cpu(const IntScalesArgs& args) {
  const IntRows shape(args.x, args.options);
  const DType stored = args.options.scale_dtype.value_or(DType::f32);
  float* scales = args.scales.data<float>();
  float* zero_points = args.zero_points.defined() ? args.zero_points.data<float>() : nullptr;
  dispatch<float, bfloat16>(args.x.dtype(), "int_scales", [&]<class T>() {
    const T* x = args.x.data<T>();
    for_groups(shape, [&](std::int64_t, std::int64_t, std::int64_t first, std::int64_t at) {
      const IntParameters p = choose(x + first, shape.group, args.options, stored);
      scales[at] = p.scale;
      if (zero_points != nullptr) zero_points[at] = p.zero_point;
    });
  });
}

void int_cast_cpu(const IntCastArgs& args) {
  const IntRows shape(args.x, args.options);
  std::int8_t* codes = args.codes.data<std::int8_t>();
  dispatch<float, bfloat16>(args.x.dtype(), "int_cast", [&]<class T>() {
    const T* x = args.x.data<T>();
    for_groups(shape, [&](std::int64_t, std::int64_t, std::int64_t first, std::int64_t at) {
      const Converter convert(given(args.scales, args.zero_points, at), args.options);
      for_vectors(shape.group, [&](std::int64_t i, auto count) {
        const F32 code = convert.clamped(convert.rounded(load(x + first + i, count)));
        // NaN becomes 0; its scale is NaN.
        const I32 integers = __builtin_convertvector(select(code == code, code, F32{}), I32);
        for (std::int64_t lane = 0; lane < count; ++lane)
          codes[first + i + lane] = static_cast<std::int8_t>(integers[lane]);
      });
    });
  });
}

void int_dequantize_cpu(const IntDequantizeArgs& args) {
  const IntRows shape(args.codes, args.options);
  const std::int8_t* codes = args.codes.data<std::int8_t>();
  dispatch<float, bfloat16>(args.out.dtype(), "int_dequantize", [&]<class T>() {
    T* out = args.out.data<T>();
    for_groups(shape, [&](std::int64_t, std::int64_t, std::int64_t first, std::int64_t at) {
      const Converter convert(given(args.scales, args.zero_points, at), args.options);
      for_vectors(shape.group, [&](std::int64_t i, auto count) {
        F32 code{};
        for (std::int64_t lane = 0; lane < count; ++lane) code[lane] = static_cast<float>(codes[first + i + lane]);
        store(out + first + i, convert.value(code), count);
      });
    });
  });
}

void fake_quantize_int_cpu(const FakeQuantizeIntArgs& args) {
  const IntRows shape(args.x, args.options);
  const DType stored = args.options.scale_dtype.value_or(DType::f32);
  const std::int64_t mask_bytes = (shape.columns + 7) / 8;
  std::uint8_t* mask = args.mask.defined() ? args.mask.data<std::uint8_t>() : nullptr;
  dispatch<float, bfloat16>(args.x.dtype(), "fake_quantize_int", [&]<class T>() {
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    for_groups(shape, [&](std::int64_t row, std::int64_t g, std::int64_t first, std::int64_t at) {
      std::uint8_t* bits = mask != nullptr ? mask + row * mask_bytes : nullptr;
      if (g == 0 && bits != nullptr) std::memset(bits, 0, static_cast<std::size_t>(mask_bytes));
      const IntParameters p = args.scales.defined() ? given(args.scales, args.zero_points, at)
                                                    : choose(x + first, shape.group, args.options, stored);
      const Converter convert(p, args.options);
      for_vectors(shape.group, [&](std::int64_t i, auto count) {
        const F32 v = load(x + first + i, count), code = convert.rounded(v);
        if (bits != nullptr) put_bits(bits, g * shape.group + i, lane_bits(convert.in_range(v, code)), count);
        store(out + first + i, convert.value(convert.clamped(code)), count);
      });
    });
  });
}

void zero_masked_cpu(const ZeroMaskedArgs& args) {
  const std::int64_t columns = args.x.size(-1), rows = args.x.numel() / columns, mask_bytes = (columns + 7) / 8;
  const std::uint8_t* mask = args.mask.data<std::uint8_t>();
  dispatch<float, bfloat16>(args.x.dtype(), "zero_masked", [&]<class T>() {
    T* x = args.x.data<T>();
    parallel_ranges(rows, args.x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        for (std::int64_t byte = 0; byte < mask_bytes; ++byte) {
          const std::uint8_t bits = mask[row * mask_bytes + byte];
          if (bits == 0xFF) continue;
          for (std::int64_t i = 8 * byte; i < std::min(columns, 8 * byte + 8); ++i)
            if ((bits >> (i % 8) & 1) == 0) x[row * columns + i] = T(0.0f);
        }
    });
  });
}

QUENCH_CPU_KERNEL(int_scales_slot, int_scales_cpu);
QUENCH_CPU_KERNEL(int_cast_slot, int_cast_cpu);
QUENCH_CPU_KERNEL(int_dequantize_slot, int_dequantize_cpu);
QUENCH_CPU_KERNEL(fake_quantize_int_slot, fake_quantize_int_cpu);
QUENCH_CPU_KERNEL(zero_masked_slot, zero_masked_cpu);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
