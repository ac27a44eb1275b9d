#include "core/ops/rope.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/pdl.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kHeads = 4;  // per thread, with shared angles, all loads in flight

template <class T>
struct Rotation {
  T* x;
  std::int64_t row_stride, head_stride;
  const float* cos;
  const float* sin;
  const std::int32_t* positions;
  std::int64_t rows, table_rows;
  int heads, half;
  float sign;
};

template <int N>
__device__ inline Vector<float, N> load_angles(const float* pointer) {
  Vector<float, N> result;
#pragma unroll
  for (int j = 0; j < N; j += 4) {
    if constexpr (N == 1) {
      result[j] = *pointer;
    } else {
      const Vector<float> part = unpack(load_packed(pointer, j / 4));
#pragma unroll
      for (int e = 0; e < 4; ++e) result[j + e] = part[e];
    }
  }
  return result;
}

// 4 D bytes per head in bf16; tables from cache, once per kHeads heads. Positions outside the tables give NaN, without
// an access.
template <class T, bool kWide>
__global__ __launch_bounds__(kThreads, 3) void rope_kernel(Rotation<T> args) {
  pdl_sync();
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  const unsigned pieces = static_cast<unsigned>(args.half) / kWidth;  // half a head
  const unsigned groups = static_cast<unsigned>(args.heads + kHeads - 1) / kHeads;
  const std::int64_t count = args.rows * groups * pieces;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const auto row = static_cast<std::int64_t>(static_cast<std::uint64_t>(i) / (std::uint64_t{groups} * pieces));
    const auto rest = static_cast<unsigned>(i - row * groups * pieces);
    const unsigned group = rest / pieces, piece = rest % pieces;
    T* first = args.x + row * args.row_stride;

    Packed<T, kWidth> low[kHeads], high[kHeads];
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const auto head = static_cast<int>(group + h * groups);
      if (head >= args.heads) continue;
      low[h] = load_packed<T, kWidth>(first + head * args.head_stride, piece);
      high[h] = load_packed<T, kWidth>(first + head * args.head_stride + args.half, piece);
    }
    const std::int32_t position = args.positions[row];
    Vector<float, kWidth> cosine, sine;
    if (position >= 0 && position < args.table_rows) {
      const std::int64_t entry = std::int64_t{position} * args.half + piece * kWidth;
      cosine = load_angles<kWidth>(args.cos + entry);
      sine = load_angles<kWidth>(args.sin + entry);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sine[j] *= args.sign;
    } else {
#pragma unroll
      for (int j = 0; j < kWidth; ++j) cosine[j] = sine[j] = __int_as_float(0x7FC00000);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      const auto head = static_cast<int>(group + h * groups);
      if (head >= args.heads) continue;
      const Vector<float, kWidth> a = unpack(low[h]), b = unpack(high[h]);
      Vector<float, kWidth> c, d;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) {
        c[j] = fmaf(a[j], cosine[j], -(b[j] * sine[j]));
        d[j] = fmaf(b[j], cosine[j], a[j] * sine[j]);
      }
      store_values(first + head * args.head_stride, piece, c);
      store_values(first + head * args.head_stride + args.half, piece, d);
    }
  }
}

// Interleaved pairs, one vector per thread.
template <class T, bool kWide>
__global__ __launch_bounds__(kThreads) void rope_neighbours_kernel(Rotation<T> args) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  constexpr int kPairs = kWide ? kWidth / 2 : 1;
  constexpr int kLoads = kWide ? 1 : 2;
  const unsigned pieces = static_cast<unsigned>(args.half) / kPairs;  // a head
  const std::int64_t of_row = std::int64_t{pieces} * args.heads, count = args.rows * of_row;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += std::int64_t{gridDim.x} * kThreads) {
    const std::int64_t row = i / of_row;
    const auto rest = static_cast<unsigned>(i - row * of_row);
    const unsigned head = rest / pieces, piece = rest % pieces;
    T* x = args.x + row * args.row_stride + head * args.head_stride + std::int64_t{piece} * (2 * kPairs);
    float values[2 * kPairs];
#pragma unroll
    for (int part = 0; part < kLoads; ++part) {
      const Vector<float, kWidth> loaded = unpack(load_packed<T, kWidth>(x, part));
#pragma unroll
      for (int j = 0; j < kWidth; ++j) values[part * kWidth + j] = loaded[j];
    }
    const std::int32_t position = args.positions[row];
    const bool inside = position >= 0 && position < args.table_rows;
    const std::int64_t entry = std::int64_t{position} * args.half + std::int64_t{piece} * kPairs;
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      const float cosine = inside ? args.cos[entry + j] : __int_as_float(0x7FC00000);
      const float sine = inside ? args.sin[entry + j] * args.sign : cosine;
      const float a = values[2 * j], b = values[2 * j + 1];
      values[2 * j] = fmaf(a, cosine, -(b * sine));
      values[2 * j + 1] = fmaf(b, cosine, a * sine);
    }
#pragma unroll
    for (int part = 0; part < kLoads; ++part) {
      Vector<float, kWidth> result;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) result[j] = values[part * kWidth + j];
      store_values(x, part, result);
    }
  }
}

template <class T>
void rotate(const OpLaunch& launch, const RopeArgs& args) {
  const Tensor& x = args.x;
  const Rotation<T> rotation{.x = x.data<T>(),
                             .row_stride = x.stride(0),
                             .head_stride = x.stride(1),
                             .cos = args.cos.data<float>(),
                             .sin = args.sin.data<float>(),
                             .positions = args.positions.data<std::int32_t>(),
                             .rows = x.size(0),
                             .table_rows = args.cos.size(0),
                             .heads = static_cast<int>(x.size(1)),
                             .half = static_cast<int>(x.size(2) / 2),
                             .sign = args.inverse ? -1.0f : 1.0f};
  if (args.interleaved) {
    const bool whole = rows_are_wide<T>(x.raw_data(), x.stride(0), x.size(2)) && x.stride(1) % kVectorWidth<T> == 0;
    const std::int64_t threads = x.size(0) * x.size(1) * (x.size(2) / (whole ? kVectorWidth<T> : 2));
    return launch(whole ? rope_neighbours_kernel<T, true> : rope_neighbours_kernel<T, false>,
                  strided_grid(launch.device(), threads, kThreads, 3, 4), kThreads, 0, rotation);
  }
  const bool wide = rows_are_wide<T>(x.raw_data(), x.stride(0), x.size(2) / 2) && x.stride(1) % kVectorWidth<T> == 0 &&
                    rows_are_wide<float>(rotation.cos, 0, 0) && rows_are_wide<float>(rotation.sin, 0, 0);
  const std::int64_t pieces = x.size(2) / 2 / (wide ? kVectorWidth<T> : 1);
  const std::int64_t threads = x.size(0) * ((x.size(1) + kHeads - 1) / kHeads) * pieces;
  launch.early(x.size(0), wide ? rope_kernel<T, true> : rope_kernel<T, false>,
               strided_grid(launch.device(), threads, kThreads, 3, 4), kThreads, 0, rotation);
}

void rope(const RopeArgs& args) {
  const OpLaunch launch("rope", {&args.x, &args.cos, &args.sin, &args.positions});
  dispatch<float, bfloat16>(args.x.dtype(), "rope", [&]<class T>() { rotate<T>(launch, args); });
}

QUENCH_CUDA_KERNEL(rope_slot, rope);

}  // namespace
}  // namespace quench::cuda
