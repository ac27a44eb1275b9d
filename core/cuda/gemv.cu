#include "core/cuda/gemv.h"

#include "core/cuda/launch.h"
#include "core/cuda/reduce.cuh"
#include "core/cuda/vector.cuh"

namespace quench::cuda {
namespace {

constexpr int kMaxRows = 4;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;

struct GemvShape {
  std::int64_t n, k, lda, ldb, ldc;
  float alpha, beta;
};

// One warp a row of b: N * K elements read once, nothing else of note. Lanes sum K in strides, then a tree over the
// warp: a fixed order.
template <int kRows, class T, class C>
__global__ __launch_bounds__(kThreads) void gemv_kernel(const T* a, const T* b, C* c, const T* bias, GemvShape s) {
  const std::int64_t column = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (column >= s.n) return;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int kWidth = kVectorWidth<T>;
  const auto* weights = reinterpret_cast<const Wide<T>*>(b + column * s.ldb);
  const int vectors = static_cast<int>(s.k / kWidth);
  float sums[kRows] = {};
#pragma unroll 4
  for (int i = lane; i < vectors; i += 32) {
    const Wide<T> w = load_streaming(weights + i);
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      const Wide<T> x = reinterpret_cast<const Wide<T>*>(a + row * s.lda)[i];
#pragma unroll
      for (int j = 0; j < kWidth; ++j) sums[row] = fmaf(to_float(x[j]), to_float(w[j]), sums[row]);
    }
  }
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    const float sum = warp_reduce(sums[row], Sum());
    if (lane != 0) continue;
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
  const GemvShape shape{args.b.size(0),   args.b.size(1), args.a.stride(0), args.b.stride(0),
                        args.c.stride(0), args.alpha,     args.beta};
  const auto grid = static_cast<unsigned>((shape.n + kWarps - 1) / kWarps);
  dispatch<float, bfloat16>(args.a.dtype(), "gemm", [&]<class T>() {
    dispatch<float, bfloat16>(args.c.dtype(), "gemm", [&]<class C>() {
      const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
      const auto run = [&](auto kernel) {
        launch(kernel, grid, kThreads, 0, args.a.data<T>(), args.b.data<T>(), args.c.data<C>(), bias, shape);
      };
      switch (args.a.size(0)) {
        case 1: run(gemv_kernel<1, T, C>); break;
        case 2: run(gemv_kernel<2, T, C>); break;
        case 3: run(gemv_kernel<3, T, C>); break;
        default: run(gemv_kernel<kMaxRows, T, C>); break;
      }
    });
  });
}

}  // namespace quench::cuda
