// A block takes 32 rows of a strip of columns: it reads them once, writes the form along the columns from registers,
// and turns them in shared memory for the form along the rows.

#include "core/cuda/quantize/mx_rounding.cuh"
#include "core/ops/experts/round_rows_mx.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
// A thread has a word of each of the 32 rows.
template <class T>
constexpr int kWordWidth = static_cast<int>(4 / sizeof(T));
template <class T>
constexpr int kStripColumns = kThreads* kWordWidth<T>;

// Where the rows stand; without pairs each by itself.
template <class T>
struct RowSource {
  const T* x;
  const std::int32_t* pairs;
  int choices;

  // Null: a row of zeros.
  __device__ const T* row(std::int64_t r, std::int64_t columns) const {
    if (pairs == nullptr) return x + r * columns;
    const std::int32_t pair = pairs[r];
    return pair >= 0 ? x + std::int64_t{pair / choices} * columns : nullptr;
  }
};

// along_columns may be x: a thread has read what it overwrites.
template <class T>
__global__ __launch_bounds__(kThreads) void round_rows_mx_kernel(RowSource<T> source, T* along_columns, T* along_rows,
                                                                 std::int64_t rows, std::int64_t columns,
                                                                 std::int64_t strips, MxScale<E4m3> scale, bool wide) {
  constexpr int kWidth = kWordWidth<T>, kPieces = kStripColumns<T> / kPiece;
  constexpr int kRounds = kMxBlockSize * kPieces / kThreads, kWords = PackedPiece<T>::kWords;
  __shared__ alignas(16) std::uint32_t words[kMxBlockSize][kThreads];
  const int thread = static_cast<int>(threadIdx.x);
  const std::int64_t strip = blockIdx.x % strips, first_row = blockIdx.x / strips * kMxBlockSize;
  const std::int64_t first_column = strip * kStripColumns<T>;
  const std::int64_t column = first_column + thread % kPieces * kPiece;
  const auto row_of = [&](int round) { return first_row + (round * kThreads + thread) / kPieces; };
  PackedPiece<T> stored[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    const std::int64_t row = row_of(i);
    const T* from = row < rows && column < columns ? source.row(row, columns) : nullptr;
    stored[i] = from != nullptr ? load_packed_piece(from + column, wide) : PackedPiece<T>{};
  }
  if (along_columns != nullptr) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      const Piece piece = round_piece<E4m3, kMxBlockSize>(stored[i], scale, MxFactor());
      const std::int64_t row = row_of(i);
      if (row < rows && column < columns) store_piece(along_columns + row * columns + column, piece, wide);
    }
  }
  if (along_rows == nullptr) return;
#pragma unroll
  for (int i = 0; i < kRounds; ++i) {
    uint4* to = reinterpret_cast<uint4*>(&words[(i * kThreads + thread) / kPieces][thread % kPieces * kWords]);
#pragma unroll
    for (int k = 0; k < kWords / 4; ++k)
      to[k] = make_uint4(stored[i].words[4 * k], stored[i].words[4 * k + 1], stored[i].words[4 * k + 2],
                         stored[i].words[4 * k + 3]);
  }
  __syncthreads();
  const std::int64_t own = first_column + std::int64_t{thread} * kWidth;
  if (own >= columns) return;
  using Word = PackedOf<T, kWidth>;
  Word turned[kMxBlockSize];
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) turned[i] = *reinterpret_cast<const Word*>(&words[i][thread]);
  round_rows_of_columns<T, kWidth>(turned, scale);
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) {
    T* to = along_rows + (first_row + i) * columns + own;
    if (wide) {
      *reinterpret_cast<Word*>(to) = turned[i];
    } else {
      const Vector<float, kWidth> values = unpack_values<T, kWidth>(turned[i]);
#pragma unroll
      for (int c = 0; c < kWidth; ++c) to[c] = from_float<T>(values[c]);
    }
  }
}

void round_rows_mx_cuda(const RoundRowsMxArgs& args) {
  const GroupRows& rows = args.rows;
  const OpLaunch launch("round_rows_mx", {&rows.x, &rows.pairs, &args.along_columns, &args.along_rows});
  dispatch<float, bfloat16>(rows.x.dtype(), "round_rows_mx", [&]<class T>() {
    const auto pointer = [](const Tensor& t) { return t.defined() ? t.data<T>() : nullptr; };
    T *along_columns = pointer(args.along_columns), *along_rows = pointer(args.along_rows);
    const RowSource<T> source{rows.x.data<T>(), rows.pairs.defined() ? rows.pairs.data<std::int32_t>() : nullptr,
                              static_cast<int>(rows.choices)};
    const std::int64_t columns = rows.x.size(1), strips = (columns + kStripColumns<T> - 1) / kStripColumns<T>;
    const std::int64_t blocks = (rows.rows() + kMxBlockSize - 1) / kMxBlockSize;
    launch(round_rows_mx_kernel<T>, static_cast<unsigned>(strips * blocks), kThreads, 0, source, along_columns,
           along_rows, rows.rows(), columns, strips, MxScale<E4m3>{args.mode},
           aligned(source.x) && aligned(along_columns) && aligned(along_rows));
  });
}

QUENCH_CUDA_KERNEL(round_rows_mx_slot, round_rows_mx_cuda);

}  // namespace
}  // namespace quench::cuda
