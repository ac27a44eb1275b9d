#include "core/cuda/gemm/gemv.h"

#include "core/cuda/common/early_start.cuh"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kMaxRows = 4;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kSharedRow = 4096;  // bytes of a row for one warp: eight loads a lane

struct GemvShape {
  std::int64_t n, k, lda, ldb, ldc;
  float alpha, beta;
};

// kSplit warps a row of b: N * K elements read once, nothing else of note. Lanes sum K in strides, then a tree over the
// warp, then the warps of a row: a fixed order. Rows are on their way to the second-level cache while the kernel
// before, which makes a, still runs.
template <int kRows, int kSplit, class T, class C>
__global__ __launch_bounds__(kThreads) void gemv_kernel(const T* a, const T* b, C* c, const T* bias, GemvShape s) {
  constexpr int kWidth = kVectorWidth<T>, kStep = 32 * kSplit;
  constexpr int kInFlight = kRows == 1 ? 8 : 4;  // loads of b that a lane waits for together
  __shared__ float parts[kWarps][kRows];
  let_next_start();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t column = std::int64_t{blockIdx.x} * (kWarps / kSplit) + warp / kSplit;
  const int vectors = column < s.n ? static_cast<int>(s.k / kWidth) : 0, first = warp % kSplit * 32 + lane;
  const auto* weights = reinterpret_cast<const Wide<T>*>(b + column * s.ldb);
  // Pieces of 16 bytes, eight to a line of the cache.
  for (int i = warp % kSplit * 256 + lane * 8; i < vectors; i += 256 * kSplit) fetch_to_cache(weights + i);
  wait_for_previous();

  float sums[kRows] = {};
  for (int base = first; base < vectors; base += kInFlight * kStep) {
    Wide<T> w[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u)
      if (const int i = base + u * kStep; i < vectors) w[u] = load_streaming(weights + i);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int i = base + u * kStep;
      if (i >= vectors) break;
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const Wide<T> x = reinterpret_cast<const Wide<T>*>(a + row * s.lda)[i];
#pragma unroll
        for (int j = 0; j < kWidth; ++j) sums[row] = fmaf(to_float(x[j]), to_float(w[u][j]), sums[row]);
      }
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    sums[row] = warp_reduce(sums[row], Sum());
    if (lane == 0) parts[warp][row] = sums[row];
  }
  if constexpr (kSplit > 1) __syncthreads();
  if (lane != 0 || warp % kSplit != 0 || column >= s.n) return;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    float sum = sums[row];
#pragma unroll
    for (int part = 1; part < kSplit; ++part) sum += parts[warp + part][row];
    C& out = c[row * s.ldc + column];
    float value = s.alpha * sum;
    if (s.beta != 0.0f) value += s.beta * to_float(out);
    if (bias != nullptr) value += to_float(bias[column]);
    out = from_float<C>(value);
  }
}

template <class T>
bool wide_rows(const Tensor& matrix) {
  const std::int64_t stride = matrix.size(0) > 1 ? matrix.stride(0) : matrix.size(1);
  return rows_are_wide<T>(matrix.raw_data(), stride, matrix.size(1));
}

}  // namespace

bool is_gemv(const GemmArgs& args) {
  if (args.transpose_a || !args.transpose_b || args.a.size(0) > kMaxRows) return false;
  const auto fits = [&]<class T>() { return wide_rows<T>(args.a) && wide_rows<T>(args.b); };
  return dispatch<float, bfloat16>(args.a.dtype(), "gemm", fits);
}

void gemv(const GemmArgs& args) {
  const OpLaunch launch("gemm", {&args.a, &args.b, &args.c, &args.bias});
  const GemvShape shape{.n = args.b.size(0),
                        .k = args.b.size(1),
                        .lda = args.a.stride(0),
                        .ldb = args.b.stride(0),
                        .ldc = args.c.stride(0),
                        .alpha = args.alpha,
                        .beta = args.beta};
  // A long row is shared out so that every load of it is in flight at once.
  const std::int64_t bytes = shape.k * byte_size(args.a.dtype());
  dispatch<float, bfloat16>(args.a.dtype(), "gemm", [&]<class T>() {
    dispatch<float, bfloat16>(args.c.dtype(), "gemm", [&]<class C>() {
      const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
      const auto run = [&]<int kRows, int kSplit>() {
        constexpr std::int64_t kColumns = kWarps / kSplit;
        launch.early(kRows, gemv_kernel<kRows, kSplit, T, C>,
                     static_cast<unsigned>((shape.n + kColumns - 1) / kColumns), kThreads, 0, args.a.data<T>(),
                     args.b.data<T>(), args.c.data<C>(), bias, shape);
      };
      const auto split = [&]<int kRows>() {
        if (bytes >= 3 * kSharedRow)
          run.template operator()<kRows, 4>();
        else if (bytes >= 3 * kSharedRow / 2)
          run.template operator()<kRows, 2>();
        else
          run.template operator()<kRows, 1>();
      };
      switch (args.a.size(0)) {
        case 1: split.template operator()<1>(); break;
        case 2: split.template operator()<2>(); break;
        case 3: split.template operator()<3>(); break;
        default: split.template operator()<kMaxRows>(); break;
      }
    });
  });
}

}  // namespace quench::cuda
