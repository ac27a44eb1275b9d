#pragma once
// Elementwise kernels, memory bound: 16-byte vectors where aligned.

#include <algorithm>
#include <initializer_list>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"

namespace quench::cuda {

inline constexpr int kMapThreads = 256;
inline constexpr int kMapUnroll = 2;  // vectors in flight
inline constexpr int kMapResident = 6;

template <int N, class T>
__device__ inline Vector<float, N> load_values(const T* pointer, std::int64_t index) {
  return unpack(load_packed<T, N>(pointer, index));
}

// compute<N>(index): N elements of vector `index`; member `out` is the output's pointer. A thread computes all its
// vectors before the first store: loads overlap although operands may alias.
template <int N, class Body>
__global__ __launch_bounds__(kMapThreads, kMapResident) void map_kernel(Body body, std::int64_t n) {
  const std::int64_t pieces = n / N;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kMapThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kMapThreads;
  std::int64_t i = thread;
  for (; i + (kMapUnroll - 1) * step < pieces; i += kMapUnroll * step) {
    Vector<float, N> values[kMapUnroll];
#pragma unroll
    for (int u = 0; u < kMapUnroll; ++u) values[u] = body.template compute<N>(i + u * step);
#pragma unroll
    for (int u = 0; u < kMapUnroll; ++u) store_values(body.out, i + u * step, values[u]);
  }
  for (; i < pieces; i += step) store_values(body.out, i, body.template compute<N>(i));
  const std::int64_t rest = pieces * N + thread;
  if (rest < n) store_values(body.out, rest, body.template compute<1>(rest));
}

// kWidest: bytes of the widest element; 16-byte vectors of it if all operands are aligned and, with `period`, vectors
// do not straddle multiples of it.
template <int kWidest, class Body>
void launch_map(const OpLaunch& launch, const Body& body, std::int64_t n, std::initializer_list<const Tensor*> operands,
                std::int64_t period = 0) {
  constexpr int kWidth = 16 / kWidest;
  const bool wide = period % kWidth == 0 && std::all_of(operands.begin(), operands.end(), [](const Tensor* t) {
                      return reinterpret_cast<std::uintptr_t>(t->raw_data()) % 16 == 0;
                    });
  launch(wide ? map_kernel<kWidth, Body> : map_kernel<1, Body>,
         strided_grid(launch.device(), n, (wide ? kWidth : 1) * kMapUnroll * kMapThreads, kMapResident, 4), kMapThreads,
         0, body, n);
}

}  // namespace quench::cuda
