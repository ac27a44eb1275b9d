// Rounding to MX or NVFP4 blocks and back: reads x once and writes as much.

#include <cuda_fp16.h>

#include "core/cuda/quantize/block_scale.cuh"
#include "core/ops/quantize/round_mx.h"
#include "core/ops/quantize/round_nvfp4.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

// decode(encode(x)) of e2m1, whose values lie 0.5 apart up to 2, 1 up to 4 and 2 up to 6: ties go to even multiples of
// the step, which have the even codes.
__device__ float through_e2m1(float x) {
  const float size = fminf(fabsf(x), E2m1::kMax);
  const float step = size < 2.0f ? 0.5f : size < 4.0f ? 1.0f : 2.0f;
  const float inverse = size < 2.0f ? 2.0f : size < 4.0f ? 1.0f : 0.5f;
  return copysignf(rintf(size * inverse) * step, x);
}

// What two elements are worth under their block's scale, whose codes are worth `factor` times their value.
template <class Element>
__device__ float2 rounded_pair(float a, float b, const BlockScale& by, float factor) {
  if (by.is_nan) return make_float2(__uint_as_float(kF32QuietNan), __uint_as_float(kF32QuietNan));
  float2 values;
  if constexpr (std::is_same_v<Element, E4m3>) {
    const auto codes = static_cast<__nv_fp8x2_storage_t>(encode_pair<E4m3>(a * by.multiplier, b * by.multiplier));
    values = __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(codes, __NV_E4M3)));
  } else {
    static_assert(std::is_same_v<Element, E2m1>);
    values = make_float2(through_e2m1(a * by.multiplier), through_e2m1(b * by.multiplier));
  }
  return make_float2(values.x * factor, values.y * factor);
}

// A thread a piece, neighbours a block along the columns.
template <class T, class Element, int kBlock, class Scale, class Factor>
__global__ __launch_bounds__(kThreads) void round_columns_kernel(const T* x, T* out, std::int64_t groups, Scale scale,
                                                                 Factor factor, bool wide) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
  // The bound is the same for a whole warp: its lanes take part in the exchange together.
  for (std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x / 32 * 32; first < groups;
       first += stride) {
    const std::int64_t g = first + threadIdx.x % 32;
    const bool active = g < groups;
    Piece piece = load_piece(x + (active ? g : 0) * kPiece, wide);
    std::uint32_t most = max_magnitude(piece);
#pragma unroll
    for (int offset = 1; offset < kBlock / kPiece; offset *= 2)
      most = max(most, __shfl_xor_sync(0xFFFFFFFFu, most, offset));
    if (!active) continue;
    const BlockScale by = scale(__uint_as_float(most));
    const float decoded = factor(by.code);
#pragma unroll
    for (int i = 0; i < kPiece; i += 2) {
      const float2 pair = rounded_pair<Element>(piece[i], piece[i + 1], by, decoded);
      piece[i] = pair.x;
      piece[i + 1] = pair.y;
    }
    store_piece(out + g * kPiece, piece, wide);
  }
}

// A thread a block of 32 rows of kWidth neighbouring columns.
template <class T, class Element, int kWidth>
__global__ __launch_bounds__(kThreads) void round_rows_kernel(const T* x, T* out, MatrixBatch shape,
                                                              std::int64_t strips, std::int64_t parts,
                                                              MxScale<Element> scale) {
  const std::int64_t row_blocks = shape.rows / kMxBlockSize;
  const std::int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips % parts,
                     batch = blockIdx.x / strips / parts;
  const std::int64_t column = (strip * 32 + threadIdx.x % 32) * kWidth,
                     row_block = part * (kThreads / 32) + threadIdx.x / 32;
  if (column >= shape.columns || row_block >= row_blocks) return;
  const std::int64_t first = (batch * shape.rows + row_block * kMxBlockSize) * shape.columns + column;
  PackedOf<T, kWidth> raw[kMxBlockSize];
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i)
    raw[i] = *reinterpret_cast<const PackedOf<T, kWidth>*>(x + first + i * shape.columns);
  std::uint32_t most[kWidth] = {};
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) {
    const Vector<float, kWidth> values = unpack_values<T, kWidth>(raw[i]);
#pragma unroll
    for (int c = 0; c < kWidth; ++c) most[c] = max(most[c], magnitude(values[c]));
  }
  BlockScale by[kWidth];
  float decoded[kWidth];
#pragma unroll
  for (int c = 0; c < kWidth; ++c) {
    by[c] = scale(__uint_as_float(most[c]));
    decoded[c] = decode_e8m0(by[c].code);
  }
#pragma unroll
  for (int i = 0; i < kMxBlockSize; i += 2) {
    Vector<float, kWidth> values[2] = {unpack_values<T, kWidth>(raw[i]), unpack_values<T, kWidth>(raw[i + 1])};
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      const float2 pair = rounded_pair<Element>(values[0][c], values[1][c], by[c], decoded[c]);
      values[0][c] = pair.x;
      values[1][c] = pair.y;
    }
#pragma unroll
    for (int k = 0; k < 2; ++k) store_values<T, kWidth>(out + first + (i + k) * shape.columns, 0, values[k]);
  }
}

template <class T, class Element, int kBlock, class Scale, class Factor>
void round_columns(const OpLaunch& launch, const Tensor& x, const Tensor& out, const Scale& scale,
                   const Factor& factor) {
  const std::int64_t groups = x.numel() / kPiece;
  launch(round_columns_kernel<T, Element, kBlock, Scale, Factor>, strided_grid(launch.device(), groups, kThreads, 8, 4),
         kThreads, 0, x.data<T>(), out.data<T>(), groups, scale, factor,
         aligned(x.raw_data()) && aligned(out.raw_data()));
}

void round_mx_cuda(const RoundMxArgs& args) {
  const OpLaunch launch("round_mx", {&args.x, &args.out});
  const MatrixBatch shape(args.x.shape());
  dispatch_quantize<E4m3, E2m1>("round_mx", args.x.dtype(), args.element, [&]<class T, class Element>() {
    const MxScale<Element> scale{args.mode};
    if (args.orientation == Orientation::natural)
      return round_columns<T, Element, kMxBlockSize>(launch, args.x, args.out, scale, MxFactor());
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    constexpr int kParts = kThreads / 32, kPair = sizeof(T) == 2 ? 2 : 1;
    const std::int64_t parts = (shape.rows / kMxBlockSize + kParts - 1) / kParts;
    const bool pairs = shape.columns % kPair == 0 && aligned(x, 4) && aligned(out, 4);
    const std::int64_t strips = (shape.columns / (pairs ? kPair : 1) + 31) / 32;
    launch(pairs ? round_rows_kernel<T, Element, kPair> : round_rows_kernel<T, Element, 1>,
           static_cast<unsigned>(shape.batch * strips * parts), kThreads, 0, x, out, shape, strips, parts, scale);
  });
}

void round_nvfp4_cuda(const RoundNvfp4Args& args) {
  const OpLaunch launch("round_nvfp4", {&args.x, &args.global_scale, &args.out});
  const float* global = args.global_scale.defined() ? args.global_scale.data<float>() : nullptr;
  dispatch<float, bfloat16>(args.x.dtype(), "round_nvfp4", [&]<class T>() {
    round_columns<T, E2m1, kNvfp4BlockSize>(launch, args.x, args.out, Nvfp4Scale{global}, Nvfp4Factor{global});
  });
}

QUENCH_CUDA_KERNEL(round_nvfp4_slot, round_nvfp4_cuda);
QUENCH_CUDA_KERNEL(round_mx_slot, round_mx_cuda);

}  // namespace
}  // namespace quench::cuda
