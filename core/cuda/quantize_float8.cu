// float8 casts with one f32 encode scale per tensor, row or column.

#include "core/cuda/quantize_common.cuh"
#include "core/cuda/reduce.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

struct MaxWord {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return max(a, b); }
};

float max_of(ElementFormat element) {
  return element == ElementFormat::e4m3 ? E4m3::kMax : E5m2::kMax;
}

__global__ void float8_scale_kernel(const float* amax, float* scale, std::int64_t count, float max, bool power_of_two) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) scale[i] = float8_scale(amax[i], max, power_of_two);
}

void float8_scale_cuda(const Float8ScaleArgs& args) {
  const OpLaunch launch("float8_scale", {&args.amax, &args.scale});
  const std::int64_t count = args.amax.numel();
  launch(float8_scale_kernel, dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)), kThreads, 0,
         args.amax.data<float>(), args.scale.data<float>(), count, max_of(args.element), args.power_of_two);
}

// Reads x, writes a byte an element.
template <class T, class Element>
__global__ __launch_bounds__(kThreads) void cast_by_tensor_kernel(const T* x, std::uint8_t* out, const float* scale,
                                                                  std::int64_t count, bool wide) {
  const float by = *scale;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kGroup;
#pragma unroll 4
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < count;
       i += stride) {
    const auto here = static_cast<int>(min(static_cast<std::int64_t>(kGroup), count - i));
    store_codes(out + i, encode_group<Element>(load_group(x + i, wide, here), by), wide, here);
  }
}

// A block a row. `scale` is one of the row's, or with kByColumn one for each column; reads x and scales, writes a byte
// an element.
template <class T, class Element, bool kByColumn>
__global__ __launch_bounds__(kThreads) void cast_rows_kernel(const T* x, std::uint8_t* out, const float* scale,
                                                             std::int64_t rows, std::int64_t columns, bool wide) {
  const std::int64_t row = blockIdx.x;
  const float* by = kByColumn ? scale + row / rows * columns : scale + row;
#pragma unroll 2
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x) * kGroup; c < columns; c += kThreads * kGroup) {
    const auto here = static_cast<int>(min(static_cast<std::int64_t>(kGroup), columns - c));
    Group group = load_group(x + row * columns + c, wide, here);
    if constexpr (kByColumn) {
      const Group scales = load_group(by + c, wide, here);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) group.x[i] *= scales.x[i];
    }
    store_codes(out + row * columns + c, encode_group<Element>(group, kByColumn ? 1.0f : *by), wide, here);
  }
}

void float8_cast_cuda(const Float8CastArgs& args) {
  const OpLaunch launch("float8_cast", {&args.x, &args.out.payload(), &args.out.scales()});
  const QuantFormat& format = args.out.format();
  const MatrixBatch shape(args.x.shape());
  const float* scale = args.out.scales().data<float>();
  std::uint8_t* out = bytes_of(args.out.payload());
  dispatch_quantize<E4m3, E5m2>("float8_cast", args.x.dtype(), format.element, [&]<class T, class Element>() {
    const T* x = args.x.data<T>();
    const bool base = aligned(x) && aligned(out, 8);
    if (format.granularity == Granularity::tensor) {
      launch(cast_by_tensor_kernel<T, Element>, dim3(strided_grid(launch.device(), shape.numel(), kThreads * kGroup)),
             kThreads, 0, x, out, scale, shape.numel(), base);
      return;
    }
    const dim3 grid(static_cast<unsigned>(shape.batch * shape.rows));
    const bool wide = base && shape.columns % kGroup == 0 && aligned(scale);
    launch(format.granularity == Granularity::row ? cast_rows_kernel<T, Element, false>
                                                  : cast_rows_kernel<T, Element, true>,
           grid, kThreads, 0, x, out, scale, shape.rows, shape.columns, wide);
  });
}

// Makes the compiler forget what it has derived from a value: else it keeps the widened elements between two passes, at
// twice the registers, and not the stored ones.
template <class V>
__device__ void keep_as_stored(V& value) {
#pragma unroll
  for (std::size_t i = 0; i < sizeof(V) / 4; ++i) asm volatile("" : "+r"(reinterpret_cast<std::uint32_t*>(&value)[i]));
}

// A block a row of at most kKept * kThreads whole groups, which stay in registers between the two passes: reads x once,
// writes a byte an element and a scale a row.
template <class T, class Element, int kKept>
__global__ __launch_bounds__(kThreads,
                             kKept * sizeof(T) <= 8 ? 6 : 4) void float8_rows_kernel(const T* x, std::uint8_t* out,
                                                                                     float* scales, int columns,
                                                                                     bool power_of_two) {
  __shared__ std::uint32_t scratch[33];
  const std::int64_t row = blockIdx.x;
  x += row * columns;
  out += row * columns;
  const int first = static_cast<int>(threadIdx.x) * kGroup;
  Vector<T, kGroup> kept[kKept];
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (const int c = first + k * kThreads * kGroup; c < columns) kept[k] = load_raw(x + c, true);
  std::uint32_t most = 0;
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (first + k * kThreads * kGroup < columns) most = max(most, max_magnitude(widened(kept[k])));
  most = block_reduce<kThreads>(most, 0u, scratch, MaxWord());
  const float scale = float8_scale(__uint_as_float(most), Element::kMax, power_of_two);
  if (threadIdx.x == 0) scales[row] = scale;
#pragma unroll
  for (int k = 0; k < kKept; ++k) keep_as_stored(kept[k]);
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (const int c = first + k * kThreads * kGroup; c < columns)
      store_codes(out + c, encode_group<Element>(widened(kept[k]), scale), true);
}

// The same for rows of any length and alignment: reads x twice, the second time mostly from the caches.
template <class T, class Element>
__global__ __launch_bounds__(kThreads) void float8_any_rows_kernel(const T* x, std::uint8_t* out, float* scales,
                                                                   std::int64_t columns, bool power_of_two, bool wide) {
  __shared__ std::uint32_t scratch[33];
  constexpr int kStep = kThreads * kGroup;
  const std::int64_t row = blockIdx.x, first = static_cast<std::int64_t>(threadIdx.x) * kGroup;
  x += row * columns;
  out += row * columns;
  const auto here = [&](std::int64_t c) {
    return static_cast<int>(min(static_cast<std::int64_t>(kGroup), columns - c));
  };
  std::uint32_t most = 0;
  for (std::int64_t c = first; c < columns; c += kStep)
    most = max(most, max_magnitude(load_group(x + c, wide, here(c))));
  most = block_reduce<kThreads>(most, 0u, scratch, MaxWord());
  const float scale = float8_scale(__uint_as_float(most), Element::kMax, power_of_two);
  if (threadIdx.x == 0) scales[row] = scale;
  for (std::int64_t c = first; c < columns; c += kStep)
    store_codes(out + c, encode_group<Element>(load_group(x + c, wide, here(c)), scale), wide, here(c));
}

template <class T, class Element>
void float8_rows(const Float8RowsArgs& args, const OpLaunch& launch) {
  const MatrixBatch shape(args.x.shape());
  const T* x = args.x.data<T>();
  std::uint8_t* out = bytes_of(args.out.payload());
  float* scales = args.out.scales().data<float>();
  const dim3 grid(static_cast<unsigned>(shape.batch * shape.rows));
  const bool wide = aligned(x) && aligned(out, 8) && shape.columns % kGroup == 0;
  constexpr std::int64_t kStep = kThreads * kGroup;
  constexpr int kMost = 16 / static_cast<int>(sizeof(T));  // groups: 128 bytes of registers a thread
  const auto kept = [&]<int kKept>() {
    launch(float8_rows_kernel<T, Element, kKept>, grid, kThreads, 0, x, out, scales, static_cast<int>(shape.columns),
           args.power_of_two);
  };
  if (wide && shape.columns <= 2 * kStep)
    kept.template operator()<2>();
  else if (wide && shape.columns <= 4 * kStep)
    kept.template operator()<4>();
  else if (wide && shape.columns <= kMost * kStep)
    kept.template operator()<kMost>();
  else
    launch(float8_any_rows_kernel<T, Element>, grid, kThreads, 0, x, out, scales, shape.columns, args.power_of_two,
           wide);
}

void float8_rows_cuda(const Float8RowsArgs& args) {
  const OpLaunch launch("float8_rows", {&args.x, &args.out.payload(), &args.out.scales()});
  dispatch_quantize<E4m3, E5m2>("float8_rows", args.x.dtype(), args.out.format().element,
                                [&]<class T, class Element>() { float8_rows<T, Element>(args, launch); });
}

QUENCH_CUDA_KERNEL(float8_scale_slot, float8_scale_cuda);
QUENCH_CUDA_KERNEL(float8_cast_slot, float8_cast_cuda);
QUENCH_CUDA_KERNEL(float8_rows_slot, float8_rows_cuda);

}  // namespace
}  // namespace quench::cuda
