#pragma once
// Operands for the tests of tuned rounding on both devices.

#include "core/ops/quantize/tuned_rounding.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

struct TunedRoundingCase {
  GridForm grid;
  std::int64_t rows, columns, group;
};

inline std::vector<TunedRoundingCase> tuned_rounding_cases() {
  const auto integers = [](int bits, IntMapping mapping, DType stored = DType::f32) {
    return GridForm{.bits = bits, .mapping = mapping, .stored = stored};
  };
  return {{integers(2, IntMapping::symmetric, DType::bf16), 9, 192, 64},
          {integers(3, IntMapping::asymmetric, DType::bf16), 9, 192, 16},
          {integers(4, IntMapping::asymmetric), 7, 96, 32},
          {integers(4, IntMapping::symmetric_no_clipping, DType::f16), 5, 120, 24},
          {integers(8, IntMapping::symmetric), 33, 1000, 1000},  // rows
          {integers(1, IntMapping::asymmetric), 3, 60, 5},
          {{.kind = GridKind::mx, .element = ElementFormat::e2m1}, 8, 128, 32},
          {{.kind = GridKind::mx, .element = ElementFormat::e2m3}, 8, 128, 32},
          {{.kind = GridKind::mx, .element = ElementFormat::e3m2}, 8, 128, 32},
          {{.kind = GridKind::nvfp4, .element = ElementFormat::e2m1, .global = 3e-4f}, 8, 128, 16},
          {{.kind = GridKind::floats, .element = ElementFormat::e4m3, .stored = DType::bf16}, 8, 96, 96}};
}

inline std::string describe(const TunedRoundingCase& c) {
  return fmt::format("[{}, {}] by {}, kind {}, bits {}, mapping {}, {}", c.rows, c.columns, c.group,
                     static_cast<int>(c.grid.kind), c.grid.bits, static_cast<int>(c.grid.mapping),
                     to_string(c.grid.element));
}

struct TunedRoundingInput {
  TunedRounding rounding;
  Tensor gradient;
};

// Bounds are narrower than the values in some groups, zero in one; some gradients are 0.
inline TunedRoundingInput tuned_rounding_input(Generator& random, const TunedRoundingCase& c) {
  const Shape shape{c.rows, c.columns};
  const std::int64_t groups = c.rows * c.columns / c.group;
  TunedRoundingInput made{{random.normal(shape, DType::f32, 0.05), random.normal(shape, DType::f32, 0.3),
                           Tensor::zeros({groups, 2}, DType::f32), Tensor::empty({groups, 2}, DType::f32), c.grid},
                          random.normal(shape, DType::f32)};
  auto *w = made.rounding.w.data<float>(), *v = made.rounding.offsets.data<float>();
  auto *bounds = made.rounding.bounds.data<float>(), *factors = made.rounding.factors.data<float>();
  for (std::int64_t g = 0; g < groups; ++g) {
    for (std::int64_t i = g * c.group; i < (g + 1) * c.group; ++i) {
      if (g == 1) w[i] = 0.0f;
      bounds[2 * g] = std::min(bounds[2 * g], w[i]);
      bounds[2 * g + 1] = std::max(bounds[2 * g + 1], w[i]);
      v[i] = std::clamp(v[i], -0.5f, 0.5f);
      if (i % 13 == 0) made.gradient.data<float>()[i] = 0.0f;
    }
    factors[2 * g] = 0.6f + 0.1f * static_cast<float>(g % 6);
    factors[2 * g + 1] = c.grid.symmetric() ? factors[2 * g] : 0.6f + 0.1f * static_cast<float>(g % 5);
  }
  return made;
}

}  // namespace quench::testing
