
#include "core/ops/elementwise.h"

#include <algorithm>

#include "core/cuda/common/launch.h"
#include "core/cuda/common/pack.cuh"

namespace quench::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kUnroll = 2;  // vectors in flight
constexpr int kResident = 6;

template <int N, class T>
__device__ inline Vector<float, N> read(const T* pointer, std::int64_t index) {
  return unpack(load_packed<T, N>(pointer, index));
}

// Memory bound. compute<N>(index): N elements of vector `index`. A thread computes all its vectors before the first
// store: loads overlap although operands may alias.
template <int N, class Body>
__global__ __launch_bounds__(kThreads, kResident) void map_kernel(Body body, std::int64_t n) {
  const std::int64_t pieces = n / N;
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  std::int64_t i = thread;
  for (; i + (kUnroll - 1) * step < pieces; i += kUnroll * step) {
    Vector<float, N> values[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) values[u] = body.template compute<N>(i + u * step);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) store_values(body.out, i + u * step, values[u]);
  }
  for (; i < pieces; i += step) store_values(body.out, i, body.template compute<N>(i));
  const std::int64_t rest = pieces * N + thread;
  if (rest < n) store_values(body.out, rest, body.template compute<1>(rest));
}

template <class From, class To>
struct Cast {
  const From* from;
  To* out;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    return read<N>(from, i);
  }
};

template <class T>
struct Add {
  const T* a;
  const T* b;
  T* out;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> sum = read<N>(a, i);
    const Vector<float, N> addend = read<N>(b, i);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] += addend[j];
    return sum;
  }
};

template <class X, class T>
struct Accumulate {
  const X* x;
  T* out;
  float scale;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> sum = read<N>(out, i);
    const Vector<float, N> addend = read<N>(x, i);
#pragma unroll
    for (int j = 0; j < N; ++j) sum[j] = fmaf(addend[j], scale, sum[j]);
    return sum;
  }
};

template <class T>
struct Scale {
  T* out;
  float factor;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> values = read<N>(out, i);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= factor;
    return values;
  }
};

// kWidest: bytes of the widest element; 16-byte vectors of it if all operands are aligned.
template <int kWidest, class Body>
void launch_map(const OpLaunch& launch, const Body& body, std::int64_t n,
                std::initializer_list<const Tensor*> operands) {
  constexpr int kWidth = 16 / kWidest;
  const bool wide = std::all_of(operands.begin(), operands.end(), [](const Tensor* t) {
    return reinterpret_cast<std::uintptr_t>(t->raw_data()) % 16 == 0;
  });
  launch(wide ? map_kernel<kWidth, Body> : map_kernel<1, Body>,
         strided_grid(launch.device(), n, (wide ? kWidth : 1) * kUnroll * kThreads, kResident, 4), kThreads, 0, body,
         n);
}

void cast(const CastArgs& args) {
  const OpLaunch launch("cast", {&args.from, &args.to});
  dispatch<float, bfloat16, float16>(args.from.dtype(), "cast", [&]<class From>() {
    dispatch<float, bfloat16, float16>(args.to.dtype(), "cast", [&]<class To>() {
      launch_map<static_cast<int>(std::max(sizeof(From), sizeof(To)))>(
          launch, Cast<From, To>{.from = args.from.data<From>(), .out = args.to.data<To>()}, args.from.numel(),
          {&args.from, &args.to});
    });
  });
}

void add(const AddArgs& args) {
  const OpLaunch launch("add", {&args.a, &args.b, &args.out});
  dispatch<float, bfloat16>(args.out.dtype(), "add", [&]<class T>() {
    launch_map<static_cast<int>(sizeof(T))>(
        launch, Add<T>{.a = args.a.data<T>(), .b = args.b.data<T>(), .out = args.out.data<T>()}, args.out.numel(),
        {&args.a, &args.b, &args.out});
  });
}

void accumulate(const AccumulateArgs& args) {
  const OpLaunch launch("accumulate", {&args.x, &args.out});
  dispatch<float, bfloat16>(args.x.dtype(), "accumulate", [&]<class X>() {
    dispatch<float, bfloat16>(args.out.dtype(), "accumulate", [&]<class T>() {
      launch_map<static_cast<int>(std::max(sizeof(X), sizeof(T)))>(
          launch, Accumulate<X, T>{.x = args.x.data<X>(), .out = args.out.data<T>(), .scale = args.scale},
          args.out.numel(), {&args.x, &args.out});
    });
  });
}

void scale(const ScaleArgs& args) {
  const OpLaunch launch("scale", {&args.x});
  dispatch<float, bfloat16>(args.x.dtype(), "scale", [&]<class T>() {
    launch_map<static_cast<int>(sizeof(T))>(launch, Scale<T>{.out = args.x.data<T>(), .factor = args.factor},
                                            args.x.numel(), {&args.x});
  });
}

QUENCH_CUDA_KERNEL(cast_slot, cast);
QUENCH_CUDA_KERNEL(add_slot, add);
QUENCH_CUDA_KERNEL(accumulate_slot, accumulate);
QUENCH_CUDA_KERNEL(scale_slot, scale);

}  // namespace
}  // namespace quench::cuda
