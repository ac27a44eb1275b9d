// Fused rowwise float8 quantization, optionally with column amax.

#include "core/cuda/common/occupancy.cuh"
#include "core/cuda/quantize/float8_rounding.cuh"
#include "core/cuda/quantize/row_pieces.cuh"

namespace quench::cuda {
namespace {

// Double-buffered: one barrier per CTA maximum.
template <int kThreads>
struct BlockMax {
  std::uint32_t words[2][kThreads / 32];
};
template <int kThreads>
__device__ std::uint32_t block_max(std::uint32_t word, BlockMax<kThreads>& scratch, int turn) {
  constexpr int kWarps = kThreads / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  word = __reduce_max_sync(0xFFFFFFFFu, word);
  if (lane == 0) scratch.words[turn][threadIdx.x / 32] = word;
  __syncthreads();
  return __reduce_max_sync(0xFFFFFFFFu, lane < kWarps ? scratch.words[turn][lane] : 0u);
}

template <class Element, class T, class Rounding, int kThreads, int kKept>
__device__ void cast_row(const RowPieces<T, kThreads, kKept>& row, std::int64_t number, std::uint8_t* out, float* scale,
                         int columns, bool power_of_two, const Rounding& rounding, BlockMax<kThreads>& scratch,
                         int turn) {
  PackedPiece<T> most = {};
#pragma unroll
  for (int k = 0; k < kKept; ++k) raise(most, row.pieces[k]);
  const float by = float8_scale(__uint_as_float(block_max(largest(most), scratch, turn)), Element::kMax, power_of_two);
  if (threadIdx.x == 0) *scale = by;
#pragma unroll
  for (int k = 0; k < kKept; ++k)
    if (const int c = row.column(k); c < columns)
      store_codes(out + c, rounding.template encode<Element>(unpack(row.pieces[k]), by, number, c), true);
}

// One CTA per row of at most kKept * kThreads whole vectors.
template <class T, class Element, class Rounding, int kThreads, int kKept, int kBlocks>
__global__ __launch_bounds__(kThreads, ctas_per_sm<kThreads>(kBlocks)) void float8_rows_kernel(
    const T* x, std::uint8_t* out, float* scales, int columns, bool power_of_two, Rounding rounding) {
  __shared__ BlockMax<kThreads> scratch;
  const std::int64_t r = blockIdx.x;
  RowPieces<T, kThreads, kKept> row;
  row.load(x + r * columns, columns);
  cast_row<Element>(row, r, out + r * columns, scales + r, columns, power_of_two, rounding, scratch, 0);
}

// Persistent CTAs, every gridDim.x-th row; the next row loads during the cast. Column amax stays in registers, then
// atomics only where `column_amax` rises. blockIdx.y: matrix of the batch.
template <class T, class Element, class Rounding, int kThreads, int kKept, int kBlocks>
__global__ __launch_bounds__(kThreads, ctas_per_sm<kThreads>(kBlocks)) void float8_rows_columns_kernel(
    const T* x, std::uint8_t* out, float* scales, std::uint32_t* column_amax, std::int64_t rows, int columns,
    bool power_of_two, Rounding rounding) {
  __shared__ BlockMax<kThreads> scratch;
  const std::int64_t first_row = blockIdx.y * rows;
  x += first_row * columns;
  out += first_row * columns;
  scales += first_row;
  column_amax += std::int64_t{blockIdx.y} * columns;
  PackedPiece<T> most[kKept] = {};
  RowPieces<T, kThreads, kKept> row, next;
  next.load(x + blockIdx.x * static_cast<std::int64_t>(columns), columns);
  int turn = 0;
  for (std::int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    row = next;
    if (r + gridDim.x < rows) next.load(x + (r + gridDim.x) * columns, columns);
#pragma unroll
    for (int k = 0; k < kKept; ++k) raise(most[k], row.pieces[k]);
    cast_row<Element>(row, first_row + r, out + r * columns, scales + r, columns, power_of_two, rounding, scratch,
                      turn);
    turn ^= 1;
  }
  // Shared memory, for coalesced atomics.
#pragma unroll
  for (int k = 0; k < kKept; ++k) {
    __shared__ alignas(16) float columns_of_group[kThreads * kPiece];
    __syncthreads();
    store_piece(columns_of_group + threadIdx.x * kPiece, unpack(most[k]), true);
    __syncthreads();
    std::uint32_t held[kPiece];
    const auto column = [&](int i) { return (k * kPiece + i) * kThreads + static_cast<int>(threadIdx.x); };
#pragma unroll
    for (int i = 0; i < kPiece; ++i) held[i] = column(i) < columns ? __ldcg(column_amax + column(i)) : ~0u;
#pragma unroll
    for (int i = 0; i < kPiece; ++i)
      if (const std::uint32_t word = __float_as_uint(columns_of_group[i * kThreads + threadIdx.x]); word > held[i])
        atomicMax(column_amax + column(i), word);
  }
}

constexpr int kAnyThreads = 256;

// Any length and alignment: x is read twice, mostly from cache.
template <class T, class Element, class Rounding>
__global__ __launch_bounds__(kAnyThreads) void float8_any_rows_kernel(const T* x, std::uint8_t* out, float* scales,
                                                                      std::int64_t columns, bool power_of_two,
                                                                      bool wide, Rounding rounding) {
  __shared__ BlockMax<kAnyThreads> scratch;
  constexpr int kStep = kAnyThreads * kPiece;
  const std::int64_t row = blockIdx.x, first = static_cast<std::int64_t>(threadIdx.x) * kPiece;
  x += row * columns;
  out += row * columns;
  const auto here = [&](std::int64_t c) {
    return static_cast<int>(min(static_cast<std::int64_t>(kPiece), columns - c));
  };
  PackedPiece<T> most = {};
#pragma unroll 4
  for (std::int64_t c = first; c < columns; c += kStep) raise(most, load_packed_piece(x + c, wide, here(c)));
  const float scale = float8_scale(__uint_as_float(block_max(largest(most), scratch, 0)), Element::kMax, power_of_two);
  if (threadIdx.x == 0) scales[row] = scale;
  for (std::int64_t c = first; c < columns; c += kStep)
    store_codes(out + c, rounding.template encode<Element>(load_piece(x + c, wide, here(c)), scale, row, c), wide,
                here(c));
}

// By registers; column amax triples those of a row.
template <class T, int kRowThreads, int kKeptPieces>
struct Plan : RowPlan<kRowThreads, kKeptPieces> {
  static constexpr int kWords = kKeptPieces * PackedPiece<T>::kWords;
  static constexpr int kBlocks = (kWords <= 8 ? 2048 : kWords <= 16 ? 1536 : 1024) / kRowThreads;
  static constexpr int kColumnBlocks = std::max(1, (kWords <= 4    ? 2048
                                                    : kWords <= 8  ? 1280
                                                    : kWords <= 16 ? 768
                                                                   : 512) /
                                                       kRowThreads);
};

constexpr std::int64_t kMostMatrices = 65535;  // gridDim.y

template <class T, class Element, class Rounding>
struct RowsLaunch {
  const Float8RowsArgs& args;
  const OpLaunch& launch;
  Rounding rounding;
  MatrixBatch shape{args.x.shape()};
  std::int64_t rows = shape.batch * shape.rows;
  const T* x = args.x.template data<T>();
  std::uint8_t* out = bytes_of(args.out.payload());
  float* scales = args.out.scales().template data<float>();

  template <int kThreads, int kKept>
  void one_pass(Plan<T, kThreads, kKept>) const {
    using P = Plan<T, kThreads, kKept>;
    launch(float8_rows_kernel<T, Element, Rounding, kThreads, kKept, P::kBlocks>, dim3(static_cast<unsigned>(rows)),
           kThreads, 0, x, out, scales, static_cast<int>(shape.columns), args.power_of_two, rounding);
  }
  template <int kThreads, int kKept>
  void one_pass_with_columns(Plan<T, kThreads, kKept>) const {
    using P = Plan<T, kThreads, kKept>;
    const auto matrices = static_cast<unsigned>(shape.batch);
    launch(float8_rows_columns_kernel<T, Element, Rounding, kThreads, kKept, P::kColumnBlocks>,
           dim3(std::max(1u, strided_grid(launch.device(), rows, 1, P::kColumnBlocks) / matrices), matrices), kThreads,
           0, x, out, scales, reinterpret_cast<std::uint32_t*>(args.column_amax.template data<float>()), shape.rows,
           static_cast<int>(shape.columns), args.power_of_two, rounding);
  }
  template <class Body>
  bool with_any_plan(const Body& body) const {
    if constexpr (sizeof(T) == 2)
      return with_row_plan<Plan<T, 256, 1>, Plan<T, 256, 2>, Plan<T, 256, 4>, Plan<T, 256, 8>, Plan<T, 512, 8>>(
          shape.columns, body);
    else
      return with_row_plan<Plan<T, 256, 1>, Plan<T, 256, 2>, Plan<T, 256, 4>, Plan<T, 512, 4>>(shape.columns, body);
  }

  void operator()() const {
    const bool wide = aligned(x) && aligned(out, 8) && shape.columns % kPiece == 0;
    const Tensor& column_amax = args.column_amax;
    if (wide && column_amax.defined() && shape.batch <= kMostMatrices &&
        with_any_plan([&]<class P>() { one_pass_with_columns(P()); }))
      return;
    if (!wide || !with_any_plan([&]<class P>() { one_pass(P()); }))
      launch(float8_any_rows_kernel<T, Element, Rounding>, dim3(static_cast<unsigned>(rows)), kAnyThreads, 0, x, out,
             scales, shape.columns, args.power_of_two, wide, rounding);
    if (column_amax.defined()) raise_column_amax(launch, args.x, column_amax);
  }
};

void float8_rows_cuda(const Float8RowsArgs& args) {
  const OpLaunch launch("float8_rows", {&args.x, &args.out.payload(), &args.out.scales(), &args.column_amax});
  dispatch_quantize<E4m3, E5m2>(
      "float8_rows", args.x.dtype(), args.out.format().element, [&]<class T, class Element>() {
        with_rounding(args.rounding, [&]<class Rounding>(const Rounding& rounding) {
          RowsLaunch<T, Element, Rounding>{.args = args, .launch = launch, .rounding = rounding}();
        });
      });
}

QUENCH_CUDA_KERNEL(float8_rows_slot, float8_rows_cuda);

}  // namespace
}  // namespace quench::cuda
