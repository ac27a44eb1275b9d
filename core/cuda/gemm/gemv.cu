#include "core/cuda/gemm/gemv.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/cuda/common/swiglu_math.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/cuda/gemm/small_m_gemm.h"
#include "core/device/determinism.h"
#include "core/ops/gated_linear.h"

namespace quench::cuda {
namespace {

constexpr int kMaxRows = 4;
constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr std::int64_t kSharedRow = 4096;  // bytes per warp: eight loads per lane

struct GemvShape {
  std::int64_t n, k, lda, ldb, ldc;
  float alpha, beta;
  GatedActivation activation = GatedActivation::silu;  // unit of two operands
};

// kSplit warps per column of c. Memory bound: b is prefetched to L2 before pdl_wait(). Fixed summation order: strided
// over K per lane, tree over the warp, then warps. kOperands = 2: gate and up rows of b, c = activation(gate) * up; N
// counts columns of c.
template <int kRows, int kSplit, int kOperands, class T, class C>
__global__ __launch_bounds__(kThreads) void gemv_kernel(const T* a, const T* b, C* c, const T* bias, GemvShape s) {
  constexpr int kWidth = kVectorWidth<T>, kStep = 32 * kSplit;
  constexpr int kInFlight = kRows == 1 ? 8 : 4;  // per lane and row of b
  __shared__ float parts[kWarps][kOperands][kRows];
  pdl_launch_dependents();
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t column = std::int64_t{blockIdx.x} * (kWarps / kSplit) + warp / kSplit;
  const int vectors = column < s.n ? static_cast<int>(s.k / kWidth) : 0, first = warp % kSplit * 32 + lane;
  const Vector<T>* weights[kOperands];
#pragma unroll
  for (int o = 0; o < kOperands; ++o) {
    weights[o] = reinterpret_cast<const Vector<T>*>(b + (column + o * s.n) * s.ldb);
    // 16-byte vectors, eight per cache line.
    for (int i = warp % kSplit * 256 + lane * 8; i < vectors; i += 256 * kSplit) prefetch_l2(weights[o] + i);
  }
  pdl_wait();

  float sums[kOperands][kRows] = {};
  for (int base = first; base < vectors; base += kInFlight * kStep) {
    Vector<T> w[kOperands][kInFlight];
#pragma unroll
    for (int o = 0; o < kOperands; ++o)
#pragma unroll
      for (int u = 0; u < kInFlight; ++u)
        if (const int i = base + u * kStep; i < vectors) w[o][u] = load_streaming(weights[o] + i);
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int i = base + u * kStep;
      if (i >= vectors) break;
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const Vector<T> x = reinterpret_cast<const Vector<T>*>(a + row * s.lda)[i];
#pragma unroll
        for (int o = 0; o < kOperands; ++o)
#pragma unroll
          for (int j = 0; j < kWidth; ++j) sums[o][row] = fmaf(to_float(x[j]), to_float(w[o][u][j]), sums[o][row]);
      }
    }
  }
#pragma unroll
  for (int o = 0; o < kOperands; ++o)
#pragma unroll
    for (int row = 0; row < kRows; ++row) {
      sums[o][row] = warp_reduce(sums[o][row], Sum());
      if (lane == 0) parts[warp][o][row] = sums[o][row];
    }
  if constexpr (kSplit > 1) __syncthreads();
  if (lane != 0 || warp % kSplit != 0 || column >= s.n) return;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
    C& out = c[row * s.ldc + column];
    Vector<float, 1> values[kOperands];
#pragma unroll
    for (int o = 0; o < kOperands; ++o) {
      float sum = sums[o][row];
#pragma unroll
      for (int part = 1; part < kSplit; ++part) sum += parts[warp + part][o][row];
      values[o][0] = s.alpha * sum;
      if (kOperands == 1 && s.beta != 0.0f) values[o][0] += s.beta * to_float(out);
      if (bias != nullptr) values[o][0] += to_float(bias[column + o * s.n]);
      // Rounding of the unfused GEMM: bit-identical to gemv() then swiglu().
      if constexpr (kOperands > 1) values[o][0] = to_float(from_float<C>(values[o][0]));
    }
    if constexpr (kOperands > 1) values[0] = swiglu_of(s.activation, values[0], values[1]);
    out = from_float<C>(values[0][0]);
  }
}

template <class T>
bool wide_rows(const Tensor& matrix) {
  const std::int64_t stride = matrix.size(0) > 1 ? matrix.stride(0) : matrix.size(1);
  return rows_are_wide<T>(matrix.raw_data(), stride, matrix.size(1));
}

// Long rows: several warps, all loads in flight.
template <class Run>
void choose_split(std::int64_t row_bytes, const Run& run) {
  if (row_bytes >= 3 * kSharedRow)
    run.template operator()<4>();
  else if (row_bytes >= 3 * kSharedRow / 2)
    run.template operator()<2>();
  else
    run.template operator()<1>();
}

template <int kSplit>
unsigned blocks_for(std::int64_t columns) {
  constexpr std::int64_t kColumns = kWarps / kSplit;
  return static_cast<unsigned>((columns + kColumns - 1) / kColumns);
}

void gated_linear_cuda(const GatedLinearArgs& args) {
  const OpLaunch launch("gated_linear", {&args.x, &args.weight, &args.y, &args.bias});
  if (small_m_gemm_values(args.x, args.weight, args.y, args.bias, args.activation, launch)) return;
  const GemvShape shape{.n = args.y.size(1),
                        .k = args.weight.size(1),
                        .lda = args.x.stride(0),
                        .ldb = args.weight.stride(0),
                        .ldc = args.y.stride(0),
                        .alpha = 1.0f,
                        .beta = 0.0f,
                        .activation = args.activation};
  dispatch<float, bfloat16>(args.x.dtype(), "gated_linear", [&]<class T>() {
    const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
    const auto run = [&]<int kSplit>() {
      launch.early(1, gemv_kernel<1, kSplit, 2, T, T>, blocks_for<kSplit>(shape.n), kThreads, 0, args.x.data<T>(),
                   args.weight.data<T>(), args.y.data<T>(), bias, shape);
    };
    choose_split(shape.k * static_cast<std::int64_t>(sizeof(T)), run);
  });
}

QUENCH_CUDA_KERNEL(gated_linear_slot, gated_linear_cuda);

}  // namespace

bool is_gemv(const GemmArgs& args) {
  if (args.transpose_a || !args.transpose_b || args.a.size(0) > kMaxRows || batch_invariant()) return false;
  const auto fits = [&]<class T>() { return wide_rows<T>(args.a) && wide_rows<T>(args.b); };
  return dispatch<float, bfloat16>(args.a.dtype(), "gemm", fits);
}

void gemv(const GemmArgs& args) {
  const OpLaunch launch("gemm", {&args.a, &args.b, &args.c, &args.bias});
  if (args.alpha == 1.0f && args.beta == 0.0f &&
      small_m_gemm_values(args.a, args.b, args.c, args.bias, std::nullopt, launch))
    return;
  const GemvShape shape{.n = args.b.size(0),
                        .k = args.b.size(1),
                        .lda = args.a.stride(0),
                        .ldb = args.b.stride(0),
                        .ldc = args.c.stride(0),
                        .alpha = args.alpha,
                        .beta = args.beta};
  dispatch<float, bfloat16>(args.a.dtype(), "gemm", [&]<class T>() {
    dispatch<float, bfloat16>(args.c.dtype(), "gemm", [&]<class C>() {
      const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
      const auto run = [&]<int kRows>() {
        choose_split(shape.k * static_cast<std::int64_t>(sizeof(T)), [&]<int kSplit>() {
          launch.early(kRows, gemv_kernel<kRows, kSplit, 1, T, C>, blocks_for<kSplit>(shape.n), kThreads, 0,
                       args.a.data<T>(), args.b.data<T>(), args.c.data<C>(), bias, shape);
        });
      };
      switch (args.a.size(0)) {
        case 1: return run.template operator()<1>();
        case 2: return run.template operator()<2>();
        case 3: return run.template operator()<3>();
        default: return run.template operator()<kMaxRows>();
      }
    });
  });
}

}  // namespace quench::cuda
