// Largest magnitudes. A maximum of integers does not depend on the order, so atomics are safe here.

#include "core/cuda/quantize_common.cuh"
#include "core/cuda/reduce.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

struct MaxWord {
  __device__ std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const { return max(a, b); }
};

// Reads x once.
template <class T>
__global__ __launch_bounds__(kThreads) void amax_of_tensor_kernel(const T* x, std::int64_t count, bool wide,
                                                                  std::uint32_t* amax) {
  __shared__ std::uint32_t scratch[33];
  std::uint32_t most = 0;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads * kGroup;
#pragma unroll 4
  for (std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kGroup; i < count;
       i += stride)
    most = max(most, max_magnitude(
                         load_group(x + i, wide, static_cast<int>(min(static_cast<std::int64_t>(kGroup), count - i)))));
  most = block_reduce<kThreads>(most, 0u, scratch, MaxWord());
  if (threadIdx.x == 0) atomicMax(amax, most);
}

// A warp or a block a row; reads x once.
template <class T, int kRowThreads>
__global__ __launch_bounds__(kThreads) void amax_of_rows_kernel(const T* x, std::int64_t rows, std::int64_t columns,
                                                                bool wide, float* amax) {
  __shared__ std::uint32_t scratch[33];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  if (row >= rows) return;  // whole rows of threads: none is left waiting
  std::uint32_t most = 0;
#pragma unroll 4
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x % kRowThreads) * kGroup; c < columns;
       c += kRowThreads * kGroup)
    most = max(most, max_magnitude(load_group(x + row * columns + c, wide,
                                              static_cast<int>(min(static_cast<std::int64_t>(kGroup), columns - c)))));
  most = block_reduce<kRowThreads>(most, 0u, scratch, MaxWord());
  if (threadIdx.x % kRowThreads == 0) amax[row] = __uint_as_float(most);
}

// A block takes a strip of 32 groups of columns by kStripRows rows, a warp every eighth of them; reads x once.
constexpr int kStripColumns = 32 * kGroup;
constexpr int kStripRows = 256;

template <class T>
__global__ __launch_bounds__(kThreads) void amax_of_columns_kernel(const T* x, MatrixBatch shape, std::int64_t strips,
                                                                   std::int64_t parts, bool wide, std::uint32_t* amax) {
  __shared__ std::uint32_t most[kWarps][kStripColumns];
  const std::int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips % parts,
                     batch = blockIdx.x / strips / parts;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = strip * kStripColumns + lane * kGroup;
  const auto count =
      static_cast<int>(max(std::int64_t{0}, min(static_cast<std::int64_t>(kGroup), shape.columns - column)));
  const std::int64_t end = min(shape.rows, (part + 1) * kStripRows);
  std::uint32_t own[kGroup] = {};
  if (count > 0) {
#pragma unroll 4
    for (std::int64_t row = part * kStripRows + warp; row < end; row += kWarps) {
      const Group group = load_group(x + (batch * shape.rows + row) * shape.columns + column, wide, count);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) own[i] = max(own[i], magnitude(group.x[i]));
    }
  }
#pragma unroll
  for (int i = 0; i < kGroup; ++i) most[warp][i * 32 + lane] = own[i];  // one bank a lane
  __syncthreads();
  // Slot s holds column s % 32 * kGroup + s / 32 of the strip.
  const int slot = static_cast<int>(threadIdx.x);
  std::uint32_t word = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) word = max(word, most[w][slot]);
  const std::int64_t target = strip * kStripColumns + slot % 32 * kGroup + slot / 32;
  if (target < shape.columns) atomicMax(amax + batch * shape.columns + target, word);
}
static_assert(kThreads == kStripColumns);

template <class T>
void amax_of(const AmaxArgs& args, const OpLaunch& launch) {
  const MatrixBatch shape(args.x.shape());
  const std::int64_t rows = shape.batch * shape.rows;
  const T* x = args.x.data<T>();
  float* amax = args.amax.data<float>();
  auto* words = reinterpret_cast<std::uint32_t*>(amax);
  const bool wide = aligned(x), wide_rows = rows_are_wide<T>(x, shape.columns, shape.columns);
  if (args.granularity == Granularity::row) {
    constexpr std::int64_t kWarpRow = 1024;  // columns up to which a warp takes a row
    if (shape.columns <= kWarpRow)
      launch(amax_of_rows_kernel<T, 32>, dim3(static_cast<unsigned>((rows + kWarps - 1) / kWarps)), kThreads, 0, x,
             rows, shape.columns, wide_rows, amax);
    else
      launch(amax_of_rows_kernel<T, kThreads>, dim3(static_cast<unsigned>(rows)), kThreads, 0, x, rows, shape.columns,
             wide_rows, amax);
    return;
  }
  launch.check(cudaMemsetAsync(amax, 0, args.amax.nbytes(), launch.stream()));
  if (shape.numel() == 0) return;
  if (args.granularity == Granularity::tensor) {
    launch(amax_of_tensor_kernel<T>, dim3(strided_grid(launch.device(), shape.numel(), kThreads * kGroup)), kThreads, 0,
           x, shape.numel(), wide, words);
    return;
  }
  const std::int64_t strips = (shape.columns + kStripColumns - 1) / kStripColumns,
                     parts = (shape.rows + kStripRows - 1) / kStripRows;
  launch(amax_of_columns_kernel<T>, dim3(static_cast<unsigned>(shape.batch * strips * parts)), kThreads, 0, x, shape,
         strips, parts, wide_rows, words);
}

void amax_cuda(const AmaxArgs& args) {
  const OpLaunch launch("amax", {&args.x, &args.amax});
  QUENCH_CHECK_AS(ErrorCode::unsupported, args.granularity != Granularity::block, "amax: granularity block");
  dispatch<float, bfloat16>(args.x.dtype(), "amax", [&]<class T>() { amax_of<T>(args, launch); });
}

QUENCH_CUDA_KERNEL(amax_slot, amax_cuda);

}  // namespace
}  // namespace quench::cuda
