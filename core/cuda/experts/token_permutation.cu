// Token permutation: stable counting sort of (token, expert) pairs, one warp per chunk: counts, prefix sums over chunks
// and experts, rows ranked by warp vote. No host synchronization.

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/reduce.cuh"
#include "core/ops/experts/token_permutation.h"

namespace quench::cuda {
namespace {

constexpr int kChunk = 2048;  // pairs per warp
constexpr int kScanThreads = 1024;
constexpr int kMaxExperts = 8192;  // one shared-memory counter each, per warp
constexpr int kThreads = 256;

// Pairs of the chunk routed to e.
__global__ __launch_bounds__(32) void count_pairs_kernel(const std::int32_t* chosen, std::int64_t count, int experts,
                                                         std::int32_t* histogram) {
  extern __shared__ std::int32_t counts[];
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += 32) counts[e] = 0;
  __syncwarp();
  const std::int64_t begin = std::int64_t{blockIdx.x} * kChunk, end = min(begin + kChunk, count);
  for (std::int64_t i = begin + threadIdx.x; i < end; i += 32) atomicAdd(&counts[chosen[i]], 1);
  __syncwarp();
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += 32)
    histogram[std::int64_t{blockIdx.x} * experts + e] = counts[e];
}

// histogram becomes the first row of each (chunk, expert).
__global__ __launch_bounds__(kScanThreads) void place_chunks_kernel(std::int32_t* histogram, int chunks, int experts,
                                                                    int alignment, float* counts, std::int32_t* ends) {
  __shared__ std::int32_t sums[kScanThreads / 32 + 1];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  std::int32_t before = 0;  // rows of earlier experts
  for (int first = 0; first < experts; first += kScanThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    std::int32_t total = 0;
    if (e < experts) {
#pragma unroll 8
      for (int chunk = 0; chunk < chunks; ++chunk) total += histogram[std::int64_t{chunk} * experts + e];
    }
    const std::int32_t size = (total + alignment - 1) / alignment * alignment;
    std::int32_t inclusive = size;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const std::int32_t other = __shfl_up_sync(0xFFFFFFFFu, inclusive, offset);
      if (lane >= offset) inclusive += other;
    }
    __syncthreads();
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    if (threadIdx.x == 0) {
      std::int32_t running = before;
      for (int w = 0; w < kScanThreads / 32; ++w) {
        const std::int32_t of_warp = sums[w];
        sums[w] = running;
        running += of_warp;
      }
      sums[kScanThreads / 32] = running;
    }
    __syncthreads();
    const std::int32_t end = sums[warp] + inclusive;
    before = sums[kScanThreads / 32];
    if (e < experts) {
      counts[e] = static_cast<float>(total);
      ends[e] = end;
      std::int32_t row = end - size;
#pragma unroll 8
      for (int chunk = 0; chunk < chunks; ++chunk) {
        std::int32_t& entry = histogram[std::int64_t{chunk} * experts + e];
        const std::int32_t of_chunk = entry;
        entry = row;
        row += of_chunk;
      }
    }
  }
}

__global__ __launch_bounds__(32) void place_pairs_kernel(const std::int32_t* chosen, std::int64_t count, int experts,
                                                         const std::int32_t* first_rows, std::int32_t* rows,
                                                         std::int32_t* pairs) {
  extern __shared__ std::int32_t next[];  // next row per expert
  for (int e = static_cast<int>(threadIdx.x); e < experts; e += 32)
    next[e] = first_rows[std::int64_t{blockIdx.x} * experts + e];
  __syncwarp();
  const std::int64_t begin = std::int64_t{blockIdx.x} * kChunk, end = min(begin + kChunk, count);
  const unsigned lane = threadIdx.x;
  for (std::int64_t base = begin; base < end; base += 32) {
    const std::int64_t i = base + lane;
    // Dummy expert past the end.
    const std::int32_t expert = i < end ? chosen[i] : experts;
    const unsigned same = __match_any_sync(0xFFFFFFFFu, expert);
    const int rank = __popc(same & ((1u << lane) - 1u));
    const std::int32_t row = i < end ? next[expert] + rank : 0;
    __syncwarp();
    if (i < end) {
      if (rank == 0) next[expert] += __popc(same);
      rows[i] = row;
      pairs[row] = static_cast<std::int32_t>(i);
    }
    __syncwarp();
  }
}

void token_permutation_cuda(const TokenPermutationArgs& args) {
  const OpLaunch launch("token_permutation", {&args.experts, &args.counts, &args.ends, &args.rows, &args.pairs});
  const std::int64_t count = args.experts.numel();
  const auto experts = static_cast<int>(args.counts.size(0));
  QUENCH_CHECK_AS(ErrorCode::unsupported, experts <= kMaxExperts, "token_permutation: {} experts, at most {} on a GPU",
                  experts, kMaxExperts);
  const auto chunks = static_cast<int>((count + kChunk - 1) / kChunk);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor histogram = Tensor::empty({std::max(chunks, 1), experts}, DType::i32, launch.device());
  const std::size_t shared = static_cast<std::size_t>(experts) * sizeof(std::int32_t);
  auto* first_rows = histogram.data<std::int32_t>();
  const auto* chosen = args.experts.data<std::int32_t>();
  if (args.pairs.numel() > 0)
    launch.check(cudaMemsetAsync(args.pairs.raw_data(), 0xFF, args.pairs.nbytes(), launch.stream()));
  if (chunks > 0)
    launch(count_pairs_kernel, static_cast<unsigned>(chunks), 32, shared, chosen, count, experts, first_rows);
  launch(place_chunks_kernel, 1, kScanThreads, 0, first_rows, chunks, experts, static_cast<int>(args.alignment),
         args.counts.data<float>(), args.ends.data<std::int32_t>());
  if (chunks > 0)
    launch(place_pairs_kernel, static_cast<unsigned>(chunks), 32, shared, chosen, count, experts, first_rows,
           args.rows.data<std::int32_t>(), args.pairs.data<std::int32_t>());
}

// One 16-byte vector (or `Word`) per thread; token rows are read k times, mostly from L2.
template <class Word>
__global__ __launch_bounds__(kThreads) void permute_tokens_kernel(const Word* x, std::int64_t x_step,
                                                                  const std::int32_t* pairs, int choices, Word* out,
                                                                  std::int64_t words, std::int64_t count) {
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t row =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(words));
    const std::int32_t pair = pairs[row];
    out[i] = pair >= 0 ? x[std::int64_t{pair / choices} * x_step + i - row * words] : Word{};
  }
}

void permute_tokens_cuda(const PermuteTokensArgs& args) {
  const OpLaunch launch("permute_tokens", {&args.x, &args.pairs, &args.out});
  const auto element = static_cast<std::int64_t>(byte_size(args.x.dtype()));
  const std::int64_t bytes = args.x.size(1) * element, x_step = args.x.stride(0) * element;
  const auto run = [&]<class Word>() {
    const auto width = static_cast<std::int64_t>(sizeof(Word));
    const std::int64_t words = bytes / width, count = args.out.size(0) * words;
    launch(permute_tokens_kernel<Word>, strided_grid(launch.device(), count, kThreads, 8, 4), kThreads, 0,
           static_cast<const Word*>(args.x.raw_data()), x_step / width, args.pairs.data<std::int32_t>(),
           static_cast<int>(args.choices), static_cast<Word*>(args.out.raw_data()), words, count);
  };
  if (rows_are_wide<std::byte>(args.x.raw_data(), x_step, bytes) &&
      rows_are_wide<std::byte>(args.out.raw_data(), bytes, bytes))
    run.template operator()<uint4>();
  else if (element == 4)
    run.template operator()<std::uint32_t>();
  else
    run.template operator()<std::uint16_t>();
}

template <class T, bool kWide>
__global__ __launch_bounds__(kThreads) void unpermute_tokens_kernel(const T* y, const std::int32_t* rows, int choices,
                                                                    T* out, std::int64_t out_step, std::int64_t pieces,
                                                                    std::int64_t count) {
  constexpr int kWidth = kWide ? kVectorWidth<T> : 1;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const std::int64_t token =
        static_cast<std::int64_t>(static_cast<std::uint64_t>(i) / static_cast<std::uint64_t>(pieces));
    const std::int64_t piece = i - token * pieces;
    const std::int32_t* of_token = rows + token * choices;
    Vector<float, kWidth> sum{};
#pragma unroll 4
    for (int j = 0; j < choices; ++j) {
      if (of_token[j] < 0) continue;
      const Vector<float, kWidth> more = unpack(load_packed<T, kWidth>(y, of_token[j] * pieces + piece));
#pragma unroll
      for (int c = 0; c < kWidth; ++c) sum[c] += more[c];
    }
    store_values(out, token * out_step + piece, sum);
  }
}

void unpermute_tokens_cuda(const UnpermuteTokensArgs& args) {
  const OpLaunch launch("unpermute_tokens", {&args.y, &args.rows, &args.out});
  const std::int64_t width = args.out.size(1), out_step = args.out.stride(0);
  dispatch<float, bfloat16>(args.y.dtype(), "unpermute_tokens", [&]<class T>() {
    const bool wide =
        rows_are_wide<T>(args.y.raw_data(), width, width) && rows_are_wide<T>(args.out.raw_data(), out_step, width);
    const std::int64_t vector = wide ? kVectorWidth<T> : 1, pieces = width / vector, count = args.out.size(0) * pieces;
    launch(wide ? unpermute_tokens_kernel<T, true> : unpermute_tokens_kernel<T, false>,
           strided_grid(launch.device(), count, kThreads, 8, 4), kThreads, 0, args.y.data<T>(),
           args.rows.data<std::int32_t>(), static_cast<int>(args.rows.size(1)), args.out.data<T>(), out_step / vector,
           pieces, count);
  });
}

QUENCH_CUDA_KERNEL(token_permutation_slot, token_permutation_cuda);
QUENCH_CUDA_KERNEL(permute_tokens_slot, permute_tokens_cuda);
QUENCH_CUDA_KERNEL(unpermute_tokens_slot, unpermute_tokens_cuda);

}  // namespace
}  // namespace quench::cuda
