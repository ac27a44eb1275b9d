// Fallback of grouped_gemm_bf16.cu: mma.sync for bf16 rows of a multiple of 16 bytes, else f32 FMA. CTAs without rows
// exit.

#include "core/cuda/common/group_tiles.cuh"
#include "core/cuda/common/kernel_choice.h"
#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/sm80/mma_tile.cuh"
#include "core/cuda/sm90/kernels.h"
#include "core/ops/experts/grouped_gemm.h"

namespace quench::cuda {
namespace {

constexpr int kPlainTile = 32;  // CUDA cores, one thread per output

struct GroupedShape {
  int groups;
  std::int64_t rows, k, n;
};

// C[r] = A[r] * op(B[e]).
template <bool kTransposeB>
__global__ __launch_bounds__(kMmaThreads) void grouped_mma_kernel(const bfloat16* a, const bfloat16* b, bfloat16* c,
                                                                  const std::int32_t* ends, GroupedShape s) {
  extern __shared__ __align__(128) unsigned char memory[];
  const GroupTile tile = find_group_tile<kMmaTile>(ends, s.groups, s.rows, blockIdx.y);
  if (tile.group < 0) return;
  const std::int64_t column = std::int64_t{blockIdx.x} * kMmaTile, rows = tile.end - tile.row;
  MmaSums sums;
  if (tile.group < s.groups) {
    const bfloat16* of_group = b + std::int64_t{tile.group} * s.k * s.n;
    const MmaOperand left{a + tile.row * s.k, s.k, rows, s.k};
    const MmaOperand right = kTransposeB ? MmaOperand{of_group + column * s.k, s.k, s.n - column, s.k}
                                         : MmaOperand{of_group + column, s.n, s.n - column, s.k};
    multiply_tile<true, kTransposeB>(sums, static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)), left, right);
  }
  for_sums(sums, [&](int i, int j, float first, float second) {
    if (i >= rows || column + j >= s.n) return;
    *reinterpret_cast<std::uint32_t*>(c + (tile.row + i) * s.n + column + j) = pack_pair<bfloat16>(first, second);
  });
}

// C[e] = A_e^T * B_e + beta * C[e].
template <class C>
__global__ __launch_bounds__(kMmaThreads) void grouped_wgrad_mma_kernel(const bfloat16* a, const bfloat16* b, C* c,
                                                                        const std::int32_t* ends, std::int64_t m,
                                                                        std::int64_t n, float beta) {
  extern __shared__ __align__(128) unsigned char memory[];
  const int group = static_cast<int>(blockIdx.z);
  const std::int64_t begin = group > 0 ? ends[group - 1] : 0, depth = ends[group] - begin;
  const std::int64_t row = std::int64_t{blockIdx.y} * kMmaTile, column = std::int64_t{blockIdx.x} * kMmaTile;
  MmaSums sums;
  const MmaOperand left{a + begin * m + row, m, m - row, depth}, right{b + begin * n + column, n, n - column, depth};
  multiply_tile<false, false>(sums, static_cast<std::uint32_t>(__cvta_generic_to_shared(memory)), left, right);
  C* of_group = c + std::int64_t{group} * m * n;
  for_sums(sums, [&](int i, int j, float first, float second) {
    if (row + i >= m || column + j >= n) return;
    C* to = of_group + (row + i) * n + column + j;
    if (beta != 0.0f) {
      first += beta * to_float(to[0]);
      second += beta * to_float(to[1]);
    }
    store_values<C, 2>(to, 0, Vector<float, 2>{first, second});
  });
}

template <class T>
__global__ __launch_bounds__(kPlainTile* kPlainTile) void grouped_plain_kernel(const T* a, const T* b, T* c,
                                                                               const std::int32_t* ends, GroupedShape s,
                                                                               bool transpose_b) {
  __shared__ float left[kPlainTile][kPlainTile + 1], right[kPlainTile][kPlainTile + 1];
  const GroupTile tile = find_group_tile<kPlainTile>(ends, s.groups, s.rows, blockIdx.y);
  if (tile.group < 0) return;
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t row = tile.row + y, first = std::int64_t{blockIdx.x} * kPlainTile, column = first + x;
  float sum = 0;
  if (tile.group < s.groups) {
    const T* of_group = b + std::int64_t{tile.group} * s.k * s.n;
    for (std::int64_t k = 0; k < s.k; k += kPlainTile) {
      left[y][x] = row < tile.end && k + x < s.k ? to_float(a[row * s.k + k + x]) : 0.0f;
      if (transpose_b)
        right[x][y] = first + y < s.n && k + x < s.k ? to_float(of_group[(first + y) * s.k + k + x]) : 0.0f;
      else
        right[y][x] = column < s.n && k + y < s.k ? to_float(of_group[(k + y) * s.n + column]) : 0.0f;
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kPlainTile; ++i) sum = fmaf(left[y][i], right[i][x], sum);
      __syncthreads();
    }
  }
  if (row < tile.end && column < s.n) c[row * s.n + column] = from_float<T>(sum);
}

template <class T, class C>
__global__ __launch_bounds__(kPlainTile* kPlainTile) void grouped_wgrad_plain_kernel(const T* a, const T* b, C* c,
                                                                                     const std::int32_t* ends,
                                                                                     std::int64_t m, std::int64_t n,
                                                                                     float beta) {
  __shared__ float left[kPlainTile][kPlainTile + 1], right[kPlainTile][kPlainTile + 1];
  const int group = static_cast<int>(blockIdx.z), x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t begin = group > 0 ? ends[group - 1] : 0, end = ends[group];
  const std::int64_t first_row = std::int64_t{blockIdx.y} * kPlainTile,
                     column = std::int64_t{blockIdx.x} * kPlainTile + x;
  float sum = 0;
  for (std::int64_t k = begin; k < end; k += kPlainTile) {
    left[y][x] = k + y < end && first_row + x < m ? to_float(a[(k + y) * m + first_row + x]) : 0.0f;
    right[y][x] = k + y < end && column < n ? to_float(b[(k + y) * n + column]) : 0.0f;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kPlainTile; ++i) sum = fmaf(left[i][y], right[i][x], sum);
    __syncthreads();
  }
  if (first_row + y >= m || column >= n) return;
  C& to = c[(std::int64_t{group} * m + first_row + y) * n + column];
  to = from_float<C>(sum + (beta != 0.0f ? beta * to_float(to) : 0.0f));
}

unsigned tiles(std::int64_t n, std::int64_t tile) {
  return static_cast<unsigned>((n + tile - 1) / tile);
}

bool has_mma(const Tensor& t) {
  return t.dtype() == DType::bf16 && rows_are_wide<bfloat16>(t.raw_data(), t.size(-1), t.size(-1));
}

// Limit of gridDim.y.
constexpr std::int64_t kMaxGridRows = 65535;

void grouped_gemm_cuda(const GroupedGemmArgs& args) {
  const OpLaunch launch("grouped_gemm", {&args.a, &args.b, &args.c, &args.ends});
  if (run_kernel_family(KernelFamily::sm90_grouped_gemm, args.c, [&] { return grouped_gemm_sm90(launch, args); }))
    return;
  const GroupedShape shape{static_cast<int>(args.b.size(0)), args.a.size(0), args.a.size(1), args.c.size(1)};
  const auto* ends = args.ends.data<std::int32_t>();
  const bool mma = has_mma(args.a) && has_mma(args.b) && has_mma(args.c);
  const std::int64_t tile = mma ? kMmaTile : kPlainTile, rows = max_group_tiles(shape.rows, shape.groups + 1, tile);
  QUENCH_CHECK_AS(ErrorCode::unsupported, rows <= kMaxGridRows, "grouped_gemm: {} rows in tiles of {} are too many",
                  shape.rows, tile);
  const dim3 grid(tiles(shape.n, tile), static_cast<unsigned>(rows));
  if (mma) {
    launch(args.transpose_b ? grouped_mma_kernel<true> : grouped_mma_kernel<false>, grid, kMmaThreads, kMmaSharedBytes,
           args.a.data<bfloat16>(), args.b.data<bfloat16>(), args.c.data<bfloat16>(), ends, shape);
    return;
  }
  dispatch<float, bfloat16>(args.a.dtype(), "grouped_gemm", [&]<class T>() {
    launch(grouped_plain_kernel<T>, grid, dim3(kPlainTile, kPlainTile), 0, args.a.data<T>(), args.b.data<T>(),
           args.c.data<T>(), ends, shape, args.transpose_b);
  });
}

void grouped_wgrad_cuda(const GroupedWgradArgs& args) {
  const OpLaunch launch("grouped_wgrad", {&args.a, &args.b, &args.c, &args.ends});
  if (run_kernel_family(KernelFamily::sm90_grouped_gemm, args.c, [&] { return grouped_wgrad_sm90(launch, args); }))
    return;
  const std::int64_t groups = args.c.size(0), m = args.c.size(1), n = args.c.size(2);
  const auto* ends = args.ends.data<std::int32_t>();
  const bool mma = has_mma(args.a) && has_mma(args.b);
  const std::int64_t tile = mma ? kMmaTile : kPlainTile;
  QUENCH_CHECK_AS(ErrorCode::unsupported, groups <= kMaxGridRows && tiles(m, tile) <= kMaxGridRows,
                  "grouped_wgrad: {} groups of {} rows are too many", groups, m);
  const dim3 grid(tiles(n, tile), tiles(m, tile), static_cast<unsigned>(groups));
  dispatch<float, bfloat16>(args.c.dtype(), "grouped_wgrad", [&]<class C>() {
    if (mma) {
      launch(grouped_wgrad_mma_kernel<C>, grid, kMmaThreads, kMmaSharedBytes, args.a.data<bfloat16>(),
             args.b.data<bfloat16>(), args.c.data<C>(), ends, m, n, args.beta);
      return;
    }
    dispatch<float, bfloat16>(args.a.dtype(), "grouped_wgrad", [&]<class T>() {
      launch(grouped_wgrad_plain_kernel<T, C>, grid, dim3(kPlainTile, kPlainTile), 0, args.a.data<T>(),
             args.b.data<T>(), args.c.data<C>(), ends, m, n, args.beta);
    });
  });
}

QUENCH_CUDA_KERNEL(grouped_gemm_slot, grouped_gemm_cuda);
QUENCH_CUDA_KERNEL(grouped_wgrad_slot, grouped_wgrad_cuda);

}  // namespace
}  // namespace quench::cuda
