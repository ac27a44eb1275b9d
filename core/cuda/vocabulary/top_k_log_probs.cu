// The K largest logits of a row, one CTA per row: the K-th by radix selection in four passes of eight bits, then one
// pass that stores tokens by ascending id.

#include "core/ops/loss/top_k_log_probs.h"

#include "core/cuda/vocabulary/divergence.cuh"

namespace quench::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 256;

// Larger values have larger keys.
__device__ inline std::uint32_t selection_key(float value) {
  const std::uint32_t bits = __float_as_uint(value + 0.0f);  // maps -0 to 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

struct Threshold {
  std::uint32_t key;  // sort key of the K-th largest logit
  int equal;          // tokens to keep of those with this key
};

template <class T>
__device__ Threshold select_threshold(const T* row, std::int64_t vocab, int k, int* bins) {
  __shared__ Threshold shared;
  Threshold found{0, k};
  for (int shift = 24; shift >= 0; shift -= 8) {
    const std::uint32_t mask = shift == 24 ? 0u : ~0u << (shift + 8);
    for (int bin = threadIdx.x; bin < kBins; bin += kThreads) bins[bin] = 0;
    __syncthreads();
    for (std::int64_t v = threadIdx.x; v < vocab; v += kThreads) {
      const std::uint32_t key = selection_key(to_float(row[v]));
      if ((key & mask) == found.key) atomicAdd(&bins[key >> shift & 0xFFu], 1);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      int bin = kBins - 1, left = found.equal;
      while (bin > 0 && bins[bin] < left) left -= bins[bin--];
      shared = {found.key | static_cast<std::uint32_t>(bin) << shift, left};
    }
    __syncthreads();
    found = shared;
  }
  return found;
}

template <class T>
__global__ __launch_bounds__(kThreads) void top_k_log_probs_kernel(const T* logits, std::int64_t rows,
                                                                   std::int64_t vocab, int k, float scale,
                                                                   std::int32_t* ids, float* log_probs, float* tail) {
  __shared__ float scratch[33];
  __shared__ int bins[kBins];
  __shared__ int2 counts[2][kWarps];  // numbers of a warp's larger and equal keys; by tile parity
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* x = logits + row * vocab;
    OnlineSum all;
    for (std::int64_t v = threadIdx.x; v < vocab; v += kThreads) all.add(Vector<float, 1>{{to_float(x[v])}}, scale);
    const float whole = all.log_sum<kThreads>(scratch);
    const Threshold threshold = select_threshold(x, vocab, k, bins);
    OnlineSum rest;
    int larger_before = 0, equal_before = 0, parity = 0;
    for (std::int64_t first = 0; first < vocab; first += kThreads, parity ^= 1) {
      const std::int64_t v = first + threadIdx.x;
      const float value = v < vocab ? to_float(x[v]) : 0.0f;
      const std::uint32_t key = selection_key(value);
      const bool larger = v < vocab && key > threshold.key, equal = v < vocab && key == threshold.key;
      const unsigned larger_lanes = __ballot_sync(0xFFFFFFFFu, larger), equal_lanes = __ballot_sync(0xFFFFFFFFu, equal),
                     below = (1u << lane) - 1u;
      if (lane == 0) counts[parity][warp] = make_int2(__popc(larger_lanes), __popc(equal_lanes));
      __syncthreads();
      int larger_rank = larger_before + __popc(larger_lanes & below),
          equal_rank = equal_before + __popc(equal_lanes & below);
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const int2 count = counts[parity][w];
        if (w < warp) {
          larger_rank += count.x;
          equal_rank += count.y;
        }
        larger_before += count.x;
        equal_before += count.y;
      }
      const bool kept = larger || (equal && equal_rank < threshold.equal);
      if (kept) {
        const std::int64_t at = row * k + larger_rank + min(equal_rank, threshold.equal);
        ids[at] = static_cast<std::int32_t>(v);
        log_probs[at] = value * scale - whole;
      } else if (v < vocab) {
        rest.add(Vector<float, 1>{{value}}, scale);
      }
    }
    const float others = rest.log_sum<kThreads>(scratch);
    if (threadIdx.x == 0) tail[row] = others - whole;
  }
}

void top_k_log_probs(const TopKLogProbsArgs& args) {
  const OpLaunch launch("top_k_log_probs", {&args.logits, &args.ids, &args.log_probs, &args.tail});
  const std::int64_t rows = args.logits.size(0), vocab = args.logits.size(1);
  dispatch<float, bfloat16>(args.logits.dtype(), "top_k_log_probs", [&]<class T>() {
    launch(top_k_log_probs_kernel<T>, strided_grid(launch.device(), rows, 1, 4, 4), kThreads, 0, args.logits.data<T>(),
           rows, vocab, static_cast<int>(args.ids.size(1)), 1.0f / args.temperature, args.ids.data<std::int32_t>(),
           args.log_probs.data<float>(), args.tail.data<float>());
  });
}

QUENCH_CUDA_KERNEL(top_k_log_probs_slot, top_k_log_probs);

}  // namespace
}  // namespace quench::cuda
