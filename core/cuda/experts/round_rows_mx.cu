// MX rounding of expert rows: a CTA stages 32 rows of a column strip, rounds rowwise (16 bytes per thread), then
// columnwise (a word per row and thread). First loop not unrolled: code size.

#include "core/cuda/quantize/mx_rounding.cuh"
#include "core/ops/experts/round_rows_mx.h"
#include "core/ops/experts/token_permutation.h"
#include "core/ops/quantize/round_mx.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;
// In 16 bytes: per row, and per thread.
constexpr int kChunks = kThreads / 4, kRounds = kMxBlockSize * kChunks / kThreads;

// Contiguous without pairs.
template <class T>
struct RowSource {
  const Packed<T>* x;
  const std::int32_t* pairs;
  int choices;

  // Zeros for padding rows.
  __device__ Packed<T> load(std::int64_t r, std::int64_t chunk, std::int64_t chunks) const {
    if (pairs == nullptr) return x[r * chunks + chunk];
    const std::int32_t pair = pairs[r];
    return pair >= 0 ? x[std::int64_t{pair / choices} * chunks + chunk] : Packed<T>{};
  }
};

// rowwise may alias x.
template <class T>
__global__ __launch_bounds__(kThreads) void round_rows_mx_kernel(RowSource<T> source, Packed<T>* rowwise, T* columnwise,
                                                                 std::int64_t chunks, unsigned strips,
                                                                 MxScale<E4m3> scale) {
  constexpr int kWidth = static_cast<int>(4 / sizeof(T));
  using Word = Packed<T, kWidth>;
  __shared__ alignas(16) std::uint32_t words[kMxBlockSize][kThreads];
  const int thread = static_cast<int>(threadIdx.x), own_chunk = thread % kChunks, first_own = thread / kChunks;
  const unsigned strip = blockIdx.x % strips;
  const std::int64_t first_row = std::int64_t{blockIdx.x / strips} * kMxBlockSize;
  const std::int64_t chunk = std::int64_t{strip} * kChunks + own_chunk;
  const bool inside = chunk < chunks;
  const auto own = [&](int round) {
    return reinterpret_cast<Packed<T>*>(&words[first_own + round * (kThreads / kChunks)][4 * own_chunk]);
  };
  const auto row_of = [&](int round) { return first_row + first_own + round * (kThreads / kChunks); };
  Packed<T> stored[kRounds];
#pragma unroll
  for (int i = 0; i < kRounds; ++i) stored[i] = inside ? source.load(row_of(i), chunk, chunks) : Packed<T>{};
#pragma unroll
  for (int i = 0; i < kRounds; ++i) *own(i) = stored[i];
  __syncthreads();
  if (rowwise != nullptr) {
#pragma unroll 1
    for (int i = 0; i < kRounds; ++i) {
      const Packed<T> rounded = round_packed_to_mx<T>(*own(i), scale);
      if (inside) rowwise[row_of(i) * chunks + chunk] = rounded;
    }
  }
  const std::int64_t columns = chunks * kVectorWidth<T>;
  const std::int64_t column = (std::int64_t{strip} * kThreads + thread) * kWidth;
  if (column >= columns) return;
  Word turned[kMxBlockSize];
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i) turned[i] = *reinterpret_cast<const Word*>(&words[i][thread]);
  round_rows_of_columns<T, kWidth>(turned, scale);
#pragma unroll
  for (int i = 0; i < kMxBlockSize; ++i)
    *reinterpret_cast<Word*>(columnwise + (first_row + i) * columns + column) = turned[i];
}

// Rowwise only.
template <class T>
__global__ __launch_bounds__(kThreads) void round_gathered_columns_kernel(RowSource<T> source, Packed<T>* out,
                                                                          std::int64_t chunks, std::int64_t count,
                                                                          MxScale<E4m3> scale) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  // Warp-uniform trip count for the shuffles.
  for (std::int64_t first = std::int64_t{blockIdx.x} * kThreads + threadIdx.x / 32 * 32; first < count; first += step) {
    const std::int64_t i = first + threadIdx.x % 32;
    const bool inside = i < count;
    const std::int64_t row =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(chunks));
    const Packed<T> rounded =
        round_packed_to_mx<T>(inside ? source.load(row, i - row * chunks, chunks) : Packed<T>{}, scale);
    if (inside) out[i] = rounded;
  }
}

// Unaligned fallback.
void round_rows_apart(const RoundRowsMxArgs& args) {
  Tensor x = args.rows.x;
  if (args.rows.pairs.defined()) {
    const MemoryScope scope(MemoryCategory::workspace);
    x = Tensor::empty({args.rows.rows(), x.size(1)}, x.dtype(), x.device());
    permute_tokens({.x = args.rows.x, .pairs = args.rows.pairs, .choices = args.rows.choices, .out = x});
  }
  if (args.columnwise.defined())
    round_mx({.x = x, .out = args.columnwise, .mode = args.mode, .orientation = Orientation::transposed});
  if (args.rowwise.defined())
    round_mx({.x = x, .out = args.rowwise, .mode = args.mode, .orientation = Orientation::natural});
}

void round_rows_mx_cuda(const RoundRowsMxArgs& args) {
  const GroupRows& rows = args.rows;
  const auto address = [](const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; };
  const bool one_pass = rows.pairs.defined() || (args.rowwise.defined() && args.columnwise.defined());
  if (!one_pass || !aligned(rows.x.raw_data()) || !aligned(address(args.rowwise)) || !aligned(address(args.columnwise)))
    return round_rows_apart(args);
  const OpLaunch launch("round_rows_mx", {&rows.x, &rows.pairs, &args.rowwise, &args.columnwise});
  const MxScale<E4m3> scale{args.mode};
  dispatch<float, bfloat16>(rows.x.dtype(), "round_rows_mx", [&]<class T>() {
    const RowSource<T> source{static_cast<const Packed<T>*>(rows.x.raw_data()),
                              rows.pairs.defined() ? rows.pairs.data<std::int32_t>() : nullptr,
                              static_cast<int>(rows.choices)};
    auto* rowwise = static_cast<Packed<T>*>(address(args.rowwise));
    const std::int64_t chunks = rows.x.size(1) / kVectorWidth<T>, count = rows.rows() * chunks;
    if (!args.columnwise.defined()) {
      launch(round_gathered_columns_kernel<T>, strided_grid(launch.device(), count, kThreads, 8, 4), kThreads, 0,
             source, rowwise, chunks, count, scale);
      return;
    }
    const auto strips = static_cast<unsigned>((chunks + kChunks - 1) / kChunks);
    launch(round_rows_mx_kernel<T>, strips * static_cast<unsigned>(rows.rows() / kMxBlockSize), kThreads, 0, source,
           rowwise, args.columnwise.data<T>(), chunks, strips, scale);
  });
}

QUENCH_CUDA_KERNEL(round_rows_mx_slot, round_rows_mx_cuda);

}  // namespace
}  // namespace quench::cuda
