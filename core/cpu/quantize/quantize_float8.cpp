// float8 and int8 casts with one f32 scale per tensor, row or column.

#include "core/cpu/quantize/quantize_common.h"
#include "core/number/code_scale.h"
#include "core/number/stochastic_float8.h"

namespace quench {
namespace {

std::uint8_t* codes(const QuantTensor& out) {
  return static_cast<std::uint8_t*>(out.payload().raw_data());
}

void float8_scale_cpu(const Float8ScaleArgs& args) {
  const float* amax = args.amax.data<float>();
  float* scale = args.scale.data<float>();
  dispatch_quantize<E4m3, E5m2, Int8Code>("float8_scale", args.source, args.element, [&]<class T, class Element>() {
    for (std::int64_t i = 0, count = args.amax.numel(); i < count; ++i)
      scale[i] = code_scale<Element, T>(amax[i], args.power_of_two);
  });
}

template <class Element, class T>
inline void cast_run(const T* x, std::uint8_t* out, std::int64_t count, float scale) {
  const float factor = encode_factor<Element>(scale);
  for (std::int64_t i = 0; i < count; ++i) out[i] = Element::encode(static_cast<float>(x[i]) * factor);
}

template <class Element, class T>
void cast_by_column(const T* x, std::uint8_t* out, const float* scale, const MatrixBatch& shape) {
  const std::int64_t rows = shape.batch * shape.rows, columns = shape.columns;
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) {
    const T* from = x + r * columns;
    const float* by = scale + r / shape.rows * columns;
    std::uint8_t* to = out + r * columns;
    for (std::int64_t c = 0; c < columns; ++c)
      to[c] = Element::encode(static_cast<float>(from[c]) * encode_factor<Element>(by[c]));
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

// In row strips that fit the cache. kByColumn: a scale per column of x.
template <class Element, bool kByColumn, class T>
void cast_transposed(const T* x, std::uint8_t* out, const float* scale, const MatrixBatch& shape) {
  constexpr std::int64_t kStrip = 64;
  const std::int64_t strips = (shape.rows + kStrip - 1) / kStrip;
#pragma omp parallel for collapse(2) schedule(static) if (shape.numel() >= kParallelElements)
  for (std::int64_t b = 0; b < shape.batch; ++b) {
    for (std::int64_t s = 0; s < strips; ++s) {
      const std::int64_t first = s * kStrip, last = std::min(shape.rows, first + kStrip);
      for (std::int64_t c = 0; c < shape.columns; ++c) {
        const float by = encode_factor<Element>(kByColumn ? scale[b * shape.columns + c] : *scale);
        std::uint8_t* to = out + (b * shape.columns + c) * shape.rows;
        const T* from = x + b * shape.rows * shape.columns + c;
        for (std::int64_t r = first; r < last; ++r)
          to[r] = Element::encode(static_cast<float>(from[r * shape.columns]) * by);
      }
    }
  }
}

// Stochastic; `row`: in the random stream. Scale of column c: scale[c * scale_step]; store(c, code) for each.
template <class Element, class T, class Store>
inline void round_row(const T* x, std::int64_t columns, const float* scale, std::int64_t scale_step,
                      const RandomKey& key, std::uint64_t row, const Store& store) {
  constexpr std::int64_t kRun = kRoundingsPerBlock;
  for (std::int64_t first = 0; first < columns; first += kRun) {
    const PhiloxBlock block = matrix_rounding_block(key, row, static_cast<std::uint64_t>(first));
    for (std::int64_t c = first, end = std::min(columns, first + kRun); c < end; ++c)
      store(c, stochastic_round<Element>(static_cast<float>(x[c]) * encode_factor<Element>(scale[c * scale_step]),
                                         rounding_bits(block, static_cast<std::uint64_t>(c))));
  }
}

template <class Element, class T>
void cast_stochastically(const Float8CastArgs& args, const MatrixBatch& shape) {
  const QuantTensor& any = args.out.defined() ? args.out : args.transposed;
  const Granularity granularity = any.format().granularity;
  const T* x = args.x.data<T>();
  const float* scale = any.scales().data<float>();
  std::uint8_t* natural = args.out.defined() ? codes(args.out) : nullptr;
  std::uint8_t* transposed = args.transposed.defined() ? codes(args.transposed) : nullptr;
  const std::int64_t rows = shape.batch * shape.rows, columns = shape.columns;
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t batch = r / shape.rows;
    const float* by = granularity == Granularity::row      ? scale + r
                      : granularity == Granularity::column ? scale + batch * columns
                                                           : scale;
    std::uint8_t* turned = transposed == nullptr ? nullptr : transposed + batch * shape.rows * columns + r % shape.rows;
    round_row<Element>(x + r * columns, columns, by, granularity == Granularity::column ? 1 : 0, *args.rounding.key,
                       args.rounding.first_row + static_cast<std::uint64_t>(r), [&](std::int64_t c, std::uint8_t code) {
                         if (natural != nullptr) natural[r * columns + c] = code;
                         if (turned != nullptr) turned[c * shape.rows] = code;
                       });
  }
}

void float8_cast_cpu(const Float8CastArgs& args) {
  if (args.amax.defined()) amax_slot(DeviceType::cpu, {args.x, args.amax, Granularity::tensor, true});
  const MatrixBatch shape(args.x.shape());
  const QuantTensor& any = args.out.defined() ? args.out : args.transposed;
  const float* scale = any.scales().data<float>();
  const Granularity granularity = any.format().granularity;
  dispatch_quantize<E4m3, E5m2, Int8Code>(
      "float8_cast", args.x.dtype(), any.format().element, [&]<class T, class Element>() {
        if (args.rounding.key) return cast_stochastically<Element, T>(args, shape);
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
  dispatch_quantize<E4m3, E5m2, Int8Code>(
      "float8_rows", args.x.dtype(), args.out.format().element, [&]<class T, class Element>() {
        const T* x = args.x.data<T>();
        std::uint8_t* out = codes(args.out);
#pragma omp parallel for schedule(static) if (rows * columns >= kParallelElements)
        for (std::int64_t r = 0; r < rows; ++r) {
          const T* row = x + r * columns;
          scale[r] = code_scale<Element, T>(magnitude_value(max_magnitude(row, columns)), args.power_of_two);
          if (!args.rounding.key)
            cast_run<Element>(row, out + r * columns, columns, scale[r]);
          else
            round_row<Element>(row, columns, scale + r, 0, *args.rounding.key,
                               args.rounding.first_row + static_cast<std::uint64_t>(r),
                               [&](std::int64_t c, std::uint8_t code) { out[r * columns + c] = code; });
        }
      });
  if (!args.column_amax.defined()) return;
  const Tensor here = Tensor::empty_like(args.column_amax);
  amax_slot(DeviceType::cpu, {args.x, here, Granularity::column});
  float* most = args.column_amax.data<float>();
  // Not std::max: NaN propagates.
  for (std::int64_t i = 0, count = here.numel(); i < count; ++i)
    if (const float value = here.data<float>()[i]; !(value <= most[i]) && most[i] == most[i]) most[i] = value;
}

QUENCH_CPU_KERNEL(float8_scale_slot, float8_scale_cpu);
QUENCH_CPU_KERNEL(float8_cast_slot, float8_cast_cpu);
QUENCH_CPU_KERNEL(float8_rows_slot, float8_rows_cpu);

}  // namespace
}  // namespace quench
