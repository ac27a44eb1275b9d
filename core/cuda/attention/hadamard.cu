// Hadamard transform of heads: a warp per 256 elements of a head.

#include "core/number/hadamard.h"

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pdl.cuh"
#include "core/cuda/common/vector.cuh"
#include "core/ops/kv_cache/hadamard.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32;
constexpr int kPart = static_cast<int>(kLargestHadamardBlock), kElements = kPart / 32;

template <class T>
struct HadamardParams {
  T* x;
  std::int64_t row_stride, head_stride, parts;  // parts: rows * heads * head_parts
  int heads, dim, head_parts, block;
  float factor;
};

// Lane l has elements l + 32 i.
template <class T>
__global__ __launch_bounds__(kThreads) void hadamard_kernel(const __grid_constant__ HadamardParams<T> p) {
  pdl_sync();
  const std::int64_t part = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (part >= p.parts) return;
  const int lane = static_cast<int>(threadIdx.x) % 32, begin = static_cast<int>(part % p.head_parts) * kPart;
  const std::int64_t head = part / p.head_parts;
  T* const x = p.x + head / p.heads * p.row_stride + head % p.heads * p.head_stride + begin;
  float values[kElements];
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int d = lane + 32 * i;
    values[i] = begin + d < p.dim ? to_float(x[d]) : 0.0f;
  }
#pragma unroll
  for (int h = 1; h < 32; h *= 2) {
    if (h >= p.block) break;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      const float other = __shfl_xor_sync(0xFFFFFFFFu, values[i], h);
      values[i] = (lane & h) != 0 ? other - values[i] : values[i] + other;
    }
  }
#pragma unroll
  for (int h = 1; h < kElements; h *= 2) {
    if (32 * h >= p.block) break;
#pragma unroll
    for (int i = 0; i < kElements; ++i) {
      if ((i & h) != 0) continue;
      const float a = values[i], b = values[i + h];
      values[i] = a + b;
      values[i + h] = a - b;
    }
  }
#pragma unroll
  for (int i = 0; i < kElements; ++i) {
    const int d = lane + 32 * i;
    if (begin + d < p.dim) x[d] = from_float<T>(values[i] * p.factor);
  }
}

template <class T>
void launch_hadamard(const Tensor& x) {
  const OpLaunch launch("hadamard", {&x});
  const std::int64_t dim = x.size(2), head_parts = (dim + kPart - 1) / kPart, block = hadamard_block(dim),
                     parts = x.size(0) * x.size(1) * head_parts;
  launch.early(x.size(0), hadamard_kernel<T>, static_cast<unsigned>((parts + kWarps - 1) / kWarps), kThreads, 0,
               HadamardParams<T>{.x = x.data<T>(),
                                 .row_stride = x.stride(0),
                                 .head_stride = x.stride(1),
                                 .parts = parts,
                                 .heads = static_cast<int>(x.size(1)),
                                 .dim = static_cast<int>(dim),
                                 .head_parts = static_cast<int>(head_parts),
                                 .block = static_cast<int>(block),
                                 .factor = hadamard_factor(block)});
}

void run(const HadamardArgs& args) {
  args.x.dtype() == DType::f32 ? launch_hadamard<float>(args.x) : launch_hadamard<bfloat16>(args.x);
}

QUENCH_CUDA_KERNEL(hadamard_slot, run);

}  // namespace
}  // namespace quench::cuda
