// float8 and int8 scales, and casts with given ones, tensorwise or rowwise.

#include "core/cuda/quantize/float8_rounding.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

template <class T, class Element>
__global__ void float8_scale_kernel(const float* amax, float* scale, std::int64_t count, bool power_of_two) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) scale[i] = code_scale<Element, T>(amax[i], power_of_two);
}

void float8_scale_cuda(const Float8ScaleArgs& args) {
  const OpLaunch launch("float8_scale", {&args.amax, &args.scale});
  const std::int64_t count = args.amax.numel();
  dispatch_quantize<E4m3, E5m2, Int8Code>("float8_scale", args.source, args.element, [&]<class T, class Element>() {
    launch(float8_scale_kernel<T, Element>, dim3(static_cast<unsigned>((count + kThreads - 1) / kThreads)), kThreads, 0,
           args.amax.data<float>(), args.scale.data<float>(), count, args.power_of_two);
  });
}

constexpr int kInFlight = 4;  // per thread

// `chunks` CTAs per scale: a row, or the tensor as one. kWide: rows aligned to 16 bytes in x, 8 in `out`.
template <class T, class Element, class Rounding, bool kWide>
__global__ __launch_bounds__(kThreads) void cast_rows_kernel(const T* x, std::uint8_t* out, const float* scales,
                                                             std::int64_t columns, unsigned chunks, Rounding rounding) {
  const unsigned row = blockIdx.x / chunks;
  const float by = encode_factor<Element>(scales[row]);
  x += row * columns;
  out += row * columns;
  const std::int64_t groups = columns / kPiece;
  const std::int64_t first = std::int64_t{blockIdx.x - row * chunks} * kInFlight * kThreads + threadIdx.x;
  PackedPiece<T> stored[kInFlight];
#pragma unroll
  for (int k = 0; k < kInFlight; ++k)
    if (const std::int64_t g = first + k * kThreads; g < groups) stored[k] = load_packed_piece(x + g * kPiece, kWide);
#pragma unroll
  for (int k = 0; k < kInFlight; ++k) {
    const std::int64_t g = first + k * kThreads;
    if (g < groups) {
      store_codes(out + g * kPiece, rounding.template encode<Element>(unpack(stored[k]), by, row, g * kPiece), kWide);
    } else if (g == groups) {
      const auto rest = static_cast<int>(columns - groups * kPiece);
      const Piece last = load_piece(x + g * kPiece, false, rest);
      store_codes(out + g * kPiece, rounding.template encode<Element>(last, by, row, g * kPiece), false, rest);
    }
  }
}

void cast_float8_rows(const Float8CastArgs& args) {
  const OpLaunch launch("float8_cast", {&args.x, &args.out.payload(), &args.out.scales()});
  const QuantFormat& format = args.out.format();
  const MatrixBatch shape(args.x.shape());
  const bool by_row = format.granularity == Granularity::row;
  const std::int64_t rows = by_row ? shape.batch * shape.rows : 1, columns = by_row ? shape.columns : shape.numel();
  constexpr std::int64_t kPerBlock = kInFlight * kThreads * kPiece;
  const auto chunks = static_cast<unsigned>((columns + kPerBlock - 1) / kPerBlock);
  std::uint8_t* out = bytes_of(args.out.payload());
  dispatch_quantize<E4m3, E5m2, Int8Code>("float8_cast", args.x.dtype(), format.element, [&]<class T, class Element>() {
    const T* x = args.x.data<T>();
    const bool wide = aligned(x) && aligned(out, 8) && (rows == 1 || columns % kPiece == 0);
    with_rounding(args.rounding, [&]<class Rounding>(const Rounding& rounding) {
      launch(wide ? cast_rows_kernel<T, Element, Rounding, true> : cast_rows_kernel<T, Element, Rounding, false>,
             dim3(static_cast<unsigned>(rows) * chunks), kThreads, 0, x, out, args.out.scales().data<float>(), columns,
             chunks, rounding);
    });
  });
}

void float8_cast_cuda(const Float8CastArgs& args) {
  if (args.amax.defined()) amax_slot(DeviceType::cuda, {args.x, args.amax, Granularity::tensor, true});
  // Stochastic rounding needs the row index.
  const Granularity granularity = args.out.format().granularity;
  if (args.transposed.defined() || granularity == Granularity::column ||
      (granularity == Granularity::tensor && args.rounding.key))
    cast_float8_tiles(args);
  else
    cast_float8_rows(args);
}

QUENCH_CUDA_KERNEL(float8_scale_slot, float8_scale_cuda);
QUENCH_CUDA_KERNEL(float8_cast_slot, float8_cast_cuda);

}  // namespace
}  // namespace quench::cuda
