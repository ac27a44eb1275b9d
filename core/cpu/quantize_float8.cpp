// float8 casts with one f32 encode scale per tensor, row or column.

#include "core/cpu/quantize_common.h"

namespace quench {
namespace {

float max_of(ElementFormat element) {
  return element == ElementFormat::e4m3 ? E4m3::kMax : E5m2::kMax;
}

std::uint8_t* codes(const QuantTensor& out) {
  return static_cast<std::uint8_t*>(out.payload().raw_data());
}

void float8_scale_cpu(const Float8ScaleArgs& args) {
  const float* amax = args.amax.data<float>();
  float* scale = args.scale.data<float>();
  const float max = max_of(args.element);
  for (std::int64_t i = 0, count = args.amax.numel(); i < count; ++i)
    scale[i] = float8_scale(amax[i], max, args.power_of_two);
}

template <class Element, class T>
inline void cast_run(const T* x, std::uint8_t* out, std::int64_t count, float scale) {
  for (std::int64_t i = 0; i < count; ++i) out[i] = Element::encode(static_cast<float>(x[i]) * scale);
}

template <class Element, class T>
void cast_by_column(const T* x, std::uint8_t* out, const float* scale, const MatrixBatch& shape) {
  const std::int64_t rows = shape.batch * shape.rows, columns = shape.columns;
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * columns;
    const float* by = scale + r / shape.rows * columns;
    std::uint8_t* to = out + r * columns;
    for (std::int64_t c = 0; c < columns; ++c) to[c] = Element::encode(static_cast<float>(from[c]) * by[c]);
  }
}

template <class Element, class T>
void cast_by_row(const T* x, std::uint8_t* out, const float* scale, std::int64_t rows, std::int64_t columns) {
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) cast_run<Element>(x + r * columns, out + r * columns, columns, scale[r]);
}

template <class Element, class T>
void cast_by_tensor(const T* x, std::uint8_t* out, float scale, std::int64_t count) {
  constexpr std::int64_t kPiece = 8192;
#pragma omp parallel for schedule(static) if (count >= kParallelElements)
  for (std::int64_t first = 0; first < count; first += kPiece)
    cast_run<Element>(x + first, out + first, std::min(kPiece, count - first), scale);
}

// Codes of the transposed matrix, by strips of rows that fit the cache. kByColumn: a scale for each column of x.
template <class Element, bool kByColumn, class T>
void cast_transposed(const T* x, std::uint8_t* out, const float* scale, const MatrixBatch& shape) {
  constexpr std::int64_t kStrip = 64;
  const std::int64_t strips = (shape.rows + kStrip - 1) / kStrip;
#pragma omp parallel for collapse(2) schedule(static) if (shape.numel() >= kParallelElements)
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t first = s * kStrip, last = std::min(shape.rows, first + kStrip);
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        const float by = kByColumn ? scale[b * shape.columns + c] : *scale;
        std::uint8_t* to = out + (b * shape.columns + c) * shape.rows;
        const T* from = x + b * shape.rows * shape.columns + c;
        for (std::int64_t r = first; r < last; ++r)
          to[r] = Element::encode(static_cast<float>(from[r * shape.columns]) * by);
      }
    }
  }
}

void float8_cast_cpu(const Float8CastArgs& args) {
  const MatrixBatch shape(args.x.shape());
  const QuantTensor& any = args.out.defined() ? args.out : args.transposed;
  const float* scale = any.scales().data<float>();
  const Granularity granularity = any.format().granularity;
  dispatch_quantize<E4m3, E5m2>("float8_cast", args.x.dtype(), any.format().element, [&]<class T, class Element>() {
    const T* x = args.x.data<T>();
    if (args.out.defined()) {
      std::uint8_t* out = codes(args.out);
      if (granularity == Granularity::tensor)
        cast_by_tensor<Element>(x, out, *scale, shape.numel());
      else if (granularity == Granularity::row)
        cast_by_row<Element>(x, out, scale, shape.batch * shape.rows, shape.columns);
      else
        cast_by_column<Element>(x, out, scale, shape);
    }
    if (args.transposed.defined()) {
      std::uint8_t* out = codes(args.transposed);
      if (granularity == Granularity::tensor)
        cast_transposed<Element, false>(x, out, scale, shape);
      else
        cast_transposed<Element, true>(x, out, scale, shape);
    }
  });
}

void float8_rows_cpu(const Float8RowsArgs& args) {
  const MatrixBatch shape(args.x.shape());
  const std::int64_t rows = shape.batch * shape.rows, columns = shape.columns;
  float* scale = args.out.scales().data<float>();
  dispatch_quantize<E4m3, E5m2>(
      "float8_rows", args.x.dtype(), args.out.format().element, [&]<class T, class Element>() {
        const T* x = args.x.data<T>();
        std::uint8_t* out = codes(args.out);
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
        for (std::int64_t r = 0; r < rows; ++r) {
          const T* row = x + r * columns;
          scale[r] = float8_scale(magnitude_value(max_magnitude(row, columns)), Element::kMax, args.power_of_two);
          cast_run<Element>(row, out + r * columns, columns, scale[r]);
        }
      });
  if (!args.column_amax.defined()) return;
  const Tensor here = Tensor::empty_like(args.column_amax);
  amax_slot(DeviceType::cpu, {args.x, here, Granularity::column});
  float* most = args.column_amax.data<float>();
  // Not std::max: NaN stays.
  for (std::int64_t i = 0, count = here.numel(); i < count; ++i)
    if (const float value = here.data<float>()[i]; !(value <= most[i]) && most[i] == most[i]) most[i] = value;
}

QUENCH_CPU_KERNEL(float8_scale_slot, float8_scale_cpu);
QUENCH_CPU_KERNEL(float8_cast_slot, float8_cast_cpu);
QUENCH_CPU_KERNEL(float8_rows_slot, float8_rows_cpu);

}  // namespace
}  // namespace quench
