// Grouped float8 GEMMs in f32 per group, and operand casts.

#include <omp.h>

#include <cmath>
#include <cstring>

#include "core/number/float8.h"
#include "core/number/float_types.h"
#include "core/ops/elementwise.h"
#include "core/ops/experts/grouped_float8.h"
#include "core/ops/experts/grouped_gemm.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/quantize.h"

namespace quench {
namespace {

constexpr std::int64_t kCastStrip = 64;

// Copies gathered rows.
Tensor gathered(const GroupRows& rows) {
  if (!rows.pairs.defined()) return rows.x;
  const Tensor out = Tensor::empty({rows.rows(), rows.x.size(1)}, rows.x.dtype());
  permute_tokens({.x = rows.x, .pairs = rows.pairs, .choices = rows.choices, .out = out});
  return out;
}

// body(group, begin, end); returns the end of the last group.
template <class Body>
std::int64_t for_cast_groups(const Tensor& ends, std::int64_t rows, const Body& body) {
  std::int64_t begin = 0;
  for (std::int64_t group = 0; group < ends.size(0); ++group) {
    const std::int64_t end = ends.data<std::int32_t>()[group];
    QUENCH_CHECK(end >= begin && end <= rows, "float8 groups: group {} ends at row {}, after {}, of {}", group, end,
                 begin, rows);
    body(group, begin, end);
    begin = end;
  }
  return begin;
}

template <class Body>
void for_strips(std::int64_t columns, std::int64_t elements, const Body& body) {
#pragma omp parallel for schedule(static) if (elements > 16384 && omp_in_parallel() == 0)
  for (std::int64_t first = 0; first < columns; first += kCastStrip) body(first, std::min(kCastStrip, columns - first));
}

template <class T>
void raise_maxima(const Tensor& x, const Tensor& ends, const Tensor& column_amax) {
  const std::int64_t columns = x.size(1);
  for_strips(columns, x.numel(), [&](std::int64_t first, std::int64_t width) {
    for_cast_groups(ends, x.size(0), [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
      float* most = column_amax.data<float>() + group * columns + first;
      for (std::int64_t r = begin; r < end; ++r) {
        const T* row = x.data<T>() + r * columns + first;
        for (std::int64_t c = 0; c < width; ++c) {
          const float magnitude = std::abs(static_cast<float>(row[c]));
          // NaN propagates.
          if (!(magnitude <= most[c]) && most[c] == most[c]) most[c] = magnitude;
        }
      }
    });
  });
}

void group_rows_cast_kernel(const GroupRowsCastArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor x = gathered(args.rows);
  float8_rows_slot(DeviceType::cpu, Float8RowsArgs{x, args.out, args.power_of_two, {}, {}});
  if (args.column_amax.defined())
    dispatch<float, bfloat16>(x.dtype(), "group_rows_cast",
                              [&]<class T>() { raise_maxima<T>(x, args.rows.ends, args.column_amax); });
}

template <class T>
void cast_columns(const Tensor& x, const Tensor& ends, const GroupColumns& out) {
  const std::int64_t rows = x.size(0), columns = x.size(1);
  auto* codes = static_cast<std::uint8_t*>(out.codes.raw_data());
  for_strips(columns, x.numel(), [&](std::int64_t first, std::int64_t width) {
    const std::int64_t used =
        for_cast_groups(ends, rows, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
          for (std::int64_t c = first; c < first + width; ++c) {
            const float scale = out.scales.data<float>()[group * columns + c];
            for (std::int64_t r = begin; r < end; ++r)
              codes[c * rows + r] = E4m3::encode(static_cast<float>(x.data<T>()[r * columns + c]) * scale);
          }
        });
    for (std::int64_t c = first; c < first + width; ++c)
      std::memset(codes + c * rows + used, 0, static_cast<std::size_t>(rows - used));
  });
}

void group_columns_cast_kernel(const GroupColumnsCastArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor x = gathered(args.rows);
  dispatch<float, bfloat16>(x.dtype(), "group_columns_cast",
                            [&]<class T>() { cast_columns<T>(x, args.rows.ends, args.out); });
}

// In f32, then rounded to c.
template <class Product>
void into(const Tensor& c, bool adds, const Product& product) {
  if (c.dtype() == DType::f32) return product(c);
  const Tensor sum = Tensor::empty(c.shape(), DType::f32);
  if (adds) cast({c, sum});
  product(sum);
  cast({sum, c});
}

void grouped_float8_gemm_kernel(const GroupedFloat8GemmArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor a = dequantize(args.a, DType::f32), b = dequantize(args.b, DType::f32);
  into(args.c, false, [&](const Tensor& c) {
    grouped_gemm(GroupedGemmArgs{.a = a, .b = b, .ends = args.ends, .c = c, .transpose_b = true});
  });
}

// [R,C] in f32; rows past the last group are 0.
Tensor undone(const GroupColumns& x, const Tensor& ends) {
  const std::int64_t columns = x.codes.size(0), rows = x.codes.size(1);
  const Tensor out = Tensor::zeros({rows, columns}, DType::f32);
  const auto* codes = static_cast<const std::uint8_t*>(x.codes.raw_data());
  for_strips(columns, out.numel(), [&](std::int64_t first, std::int64_t width) {
    for_cast_groups(ends, rows, [&](std::int64_t group, std::int64_t begin, std::int64_t end) {
      const float* scales = x.scales.data<float>() + group * columns;
      for (std::int64_t r = begin; r < end; ++r)
        for (std::int64_t c = first; c < first + width; ++c)
          out.data<float>()[r * columns + c] = E4m3::decode(codes[c * rows + r]) / scales[c];
    });
  });
  return out;
}

void grouped_float8_wgrad_kernel(const GroupedFloat8WgradArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor a = undone(args.a, args.ends), b = undone(args.b, args.ends);
  into(args.c, args.beta != 0.0f, [&](const Tensor& c) {
    grouped_wgrad(GroupedWgradArgs{.a = a, .b = b, .ends = args.ends, .c = c, .beta = args.beta});
  });
}

QUENCH_CPU_KERNEL(group_rows_cast_slot, group_rows_cast_kernel);
QUENCH_CPU_KERNEL(group_columns_cast_slot, group_columns_cast_kernel);
QUENCH_CPU_KERNEL(grouped_float8_gemm_slot, grouped_float8_gemm_kernel);
QUENCH_CPU_KERNEL(grouped_float8_wgrad_slot, grouped_float8_wgrad_kernel);

}  // namespace
}  // namespace quench
