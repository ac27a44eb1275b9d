#pragma once
// Warp and CTA reductions in a fixed order.

namespace quench::cuda {

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct Max {  // NaN propagates
  __device__ float operator()(float a, float b) const { return a > b || a != a ? a : b; }
};

template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) value = op(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
  return value;
}

// Result in every thread, called by all. kThreads: multiple of 32, at most 1024; `scratch`: 33 values of shared memory,
// reusable.
template <int kThreads, class T, class Op>
__device__ T block_reduce(T value, T identity, T* scratch, Op op) {
  static_assert(kThreads % 32 == 0 && kThreads <= 1024);
  value = warp_reduce(value, op);
  if constexpr (kThreads > 32) {
    const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
    __syncthreads();
    if (lane == 0) scratch[warp] = value;
    __syncthreads();
    if (warp == 0) {
      value = warp_reduce(lane < kThreads / 32 ? scratch[lane] : identity, op);
      if (lane == 0) scratch[32] = value;
    }
    __syncthreads();
    value = scratch[32];
  }
  return value;
}

}  // namespace quench::cuda
