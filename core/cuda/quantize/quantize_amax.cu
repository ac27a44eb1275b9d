// amax by integer atomic maxima: deterministic.

#include "core/cuda/common/reduce.cuh"
#include "core/cuda/quantize/quantize_common.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

constexpr int kInFlight = 4;  // per thread

template <class T, bool kWide>
__global__ __launch_bounds__(kThreads) void amax_of_tensor_kernel(const T* x, std::int64_t count, std::uint32_t* amax) {
  __shared__ std::uint32_t scratch[33];
  const std::int64_t groups = count / kPiece, stride = static_cast<std::int64_t>(gridDim.x) * kThreads,
                     thread = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  PackedPiece<T> own = {};
  for (std::int64_t first = thread; first < groups; first += kInFlight * stride) {
    PackedPiece<T> stored[kInFlight] = {};  // zero-filled
#pragma unroll
    for (int k = 0; k < kInFlight; ++k)
      if (const std::int64_t g = first + k * stride; g < groups) stored[k] = load_packed_piece(x + g * kPiece, kWide);
#pragma unroll
    for (int k = 0; k < kInFlight; ++k) raise(own, stored[k]);
  }
  std::uint32_t most = largest(own);
  if (const std::int64_t i = groups * kPiece + thread; i < count) most = max(most, magnitude(to_float(x[i])));
  most = block_reduce<kThreads>(most, 0u, scratch, MaxWord());
  if (threadIdx.x == 0) atomicMax(amax, most);
}

// One warp or CTA per row.
template <class T, int kRowThreads>
__global__ __launch_bounds__(kThreads) void amax_of_rows_kernel(const T* x, std::int64_t rows, std::int64_t columns,
                                                                bool wide, float* amax) {
  __shared__ std::uint32_t scratch[33];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kRowThreads) + threadIdx.x / kRowThreads;
  if (row >= rows) return;  // by whole rows
  PackedPiece<T> own = {};
#pragma unroll 4
  for (std::int64_t c = static_cast<std::int64_t>(threadIdx.x % kRowThreads) * kPiece; c < columns;
       c += kRowThreads * kPiece)
    raise(own, load_packed_piece(x + row * columns + c, wide,
                                 static_cast<int>(min(static_cast<std::int64_t>(kPiece), columns - c))));
  const std::uint32_t most = block_reduce<kRowThreads>(largest(own), 0u, scratch, MaxWord());
  if (threadIdx.x % kRowThreads == 0) amax[row] = __uint_as_float(most);
}

// One CTA per strip of 32 column vectors by `part_rows` rows, every eighth row per warp.
constexpr int kStripColumns = 32 * kPiece;
constexpr int kResidentStrips = 4;  // per SM
template <class T>
inline constexpr int kRowsInFlight = 32 / PackedPiece<T>::kWords;  // 128 bytes per thread

template <class T, bool kWide>
__global__ __launch_bounds__(kThreads,
                             kResidentStrips) void amax_of_columns_kernel(const T* x, MatrixBatch shape,
                                                                          std::int64_t strips, std::int64_t parts,
                                                                          std::int64_t part_rows, std::uint32_t* amax) {
  constexpr int kRows = kRowsInFlight<T>;
  __shared__ std::uint32_t most[kWarps][kStripColumns];
  const std::int64_t strip = blockIdx.x % strips, part = blockIdx.x / strips % parts,
                     batch = blockIdx.x / strips / parts;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const std::int64_t column = strip * kStripColumns + lane * kPiece;
  const auto count =
      static_cast<int>(max(std::int64_t{0}, min(static_cast<std::int64_t>(kPiece), shape.columns - column)));
  const std::int64_t end = count > 0 ? min(shape.rows, (part + 1) * part_rows) : 0, step = kWarps * shape.columns;
  std::int64_t row = part * part_rows + warp;
  const T* from = x + (batch * shape.rows + row) * shape.columns + column;
  PackedPiece<T> own = {};
  for (; row + (kRows - 1) * kWarps < end; row += kRows * kWarps, from += kRows * step) {
    PackedPiece<T> stored[kRows];
#pragma unroll
    for (int k = 0; k < kRows; ++k) stored[k] = load_packed_piece(from + k * step, kWide, kWide ? kPiece : count);
#pragma unroll
    for (int k = 0; k < kRows; ++k) raise(own, stored[k]);
  }
  PackedPiece<T> last[kRows] = {};
#pragma unroll
  for (int k = 0; k < kRows; ++k)
    if (row + k * kWarps < end) last[k] = load_packed_piece(from + k * step, kWide, kWide ? kPiece : count);
#pragma unroll
  for (int k = 0; k < kRows; ++k) raise(own, last[k]);
  const Piece piece = unpack(own);
#pragma unroll
  for (int i = 0; i < kPiece; ++i) most[warp][i * 32 + lane] = __float_as_uint(piece[i]);  // no bank conflicts
  __syncthreads();
  // Column s % 32 * kPiece + s / 32 of the strip.
  const int slot = static_cast<int>(threadIdx.x);
  std::uint32_t word = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) word = max(word, most[w][slot]);
  const std::int64_t target = strip * kStripColumns + slot % 32 * kPiece + slot / 32;
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
    constexpr std::int64_t kWarpRow = 1024;  // widest row for one warp
    if (shape.columns <= kWarpRow)
      launch(amax_of_rows_kernel<T, 32>, dim3(static_cast<unsigned>((rows + kWarps - 1) / kWarps)), kThreads, 0, x,
             rows, shape.columns, wide_rows, amax);
    else
      launch(amax_of_rows_kernel<T, kThreads>, dim3(static_cast<unsigned>(rows)), kThreads, 0, x, rows, shape.columns,
             wide_rows, amax);
    return;
  }
  if (!args.accumulate) launch.check(cudaMemsetAsync(amax, 0, args.amax.nbytes(), launch.stream()));
  if (shape.numel() == 0) return;
  if (args.granularity == Granularity::tensor) {
    launch(wide ? amax_of_tensor_kernel<T, true> : amax_of_tensor_kernel<T, false>,
           dim3(strided_grid(launch.device(), shape.numel(), kThreads * kPiece)), kThreads, 0, x, shape.numel(), words);
    return;
  }
  raise_column_amax(launch, args.x, args.amax);
}

void amax_cuda(const AmaxArgs& args) {
  const OpLaunch launch("amax", {&args.x, &args.amax});
  QUENCH_CHECK_AS(ErrorCode::unsupported, args.granularity != Granularity::block, "amax: granularity block");
  dispatch<float, bfloat16>(args.x.dtype(), "amax", [&]<class T>() { amax_of<T>(args, launch); });
}

QUENCH_CUDA_KERNEL(amax_slot, amax_cuda);

}  // namespace

void raise_column_amax(const OpLaunch& launch, const Tensor& x, const Tensor& amax) {
  const MatrixBatch shape(x.shape());
  if (shape.numel() == 0) return;
  const std::int64_t strips = (shape.columns + kStripColumns - 1) / kStripColumns, across = shape.batch * strips,
                     resident = std::int64_t{sm_count(launch.device())} * kResidentStrips;
  // One full wave of parts; with more strips than resident CTAs small parts, for a short last wave.
  constexpr std::int64_t kFewestRows = 4 * kWarps, kRowsOfMany = 512;
  const std::int64_t wanted = across <= resident ? resident / across : (shape.rows + kRowsOfMany - 1) / kRowsOfMany,
                     part_rows = std::max((shape.rows + wanted - 1) / wanted, kFewestRows),
                     parts = (shape.rows + part_rows - 1) / part_rows;
  dispatch<float, bfloat16>(x.dtype(), "amax", [&]<class T>() {
    const T* elements = x.data<T>();
    const bool wide = shape.columns % kPiece == 0 && aligned(elements);
    launch(wide ? amax_of_columns_kernel<T, true> : amax_of_columns_kernel<T, false>,
           dim3(static_cast<unsigned>(shape.batch * strips * parts)), kThreads, 0, elements, shape,
           static_cast<std::uint32_t>(strips), static_cast<std::uint32_t>(parts), part_rows,
           reinterpret_cast<std::uint32_t*>(amax.data<float>()));
  });
}

}  // namespace quench::cuda
