
#include "core/ops/elementwise.h"

#include <algorithm>

#include "core/cuda/common/map.cuh"

namespace quench::cuda {

namespace {

template <class From, class To>
struct Cast {
  const From* from;
  To* out;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    return load_values<N>(from, i);
  }
};

template <class T>
struct Add {
  const T* a;
  const T* b;
  T* out;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> sum = load_values<N>(a, i);
    const Vector<float, N> addend = load_values<N>(b, i);
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
    Vector<float, N> sum = load_values<N>(out, i);
    const Vector<float, N> addend = load_values<N>(x, i);
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
    Vector<float, N> values = load_values<N>(out, i);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= factor;
    return values;
  }
};

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
