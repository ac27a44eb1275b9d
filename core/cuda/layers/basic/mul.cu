#include "core/ops/basic/mul.h"

#include "core/cuda/common/map.cuh"

namespace quench::cuda {
namespace {

template <class T, class Out>
struct Product {
  const T* a;
  const T* b;
  Out* out;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> values = load_values<N>(a, i);
    const Vector<float, N> factors = load_values<N>(b, i);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= factors[j];
    return values;
  }
};

// `width` factors, again for each row; a multiple of N.
template <class T, class Out>
struct RowProduct {
  const T* a;
  const T* b;
  Out* out;
  std::int64_t width;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> values = load_values<N>(a, i);
    const Vector<float, N> factors = load_values<N>(b, i % (width / N));
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= factors[j];
    return values;
  }
};

template <class T, class Out>
void multiply(const OpLaunch& launch, const MulArgs& args) {
  constexpr int kWidest = static_cast<int>(std::max(sizeof(T), sizeof(Out)));
  const T* a = args.a.data<T>();
  const T* b = args.b.data<T>();
  Out* out = args.out.data<Out>();
  const std::int64_t n = args.out.numel();
  if (args.b.shape() == args.a.shape())
    return launch_map<kWidest>(launch, Product<T, Out>{a, b, out}, n, {&args.a, &args.b, &args.out});
  const std::int64_t width = args.b.size(0);
  launch_map<kWidest>(launch, RowProduct<T, Out>{a, b, out, width}, n, {&args.a, &args.b, &args.out}, width);
}

void mul(const MulArgs& args) {
  const OpLaunch launch("mul", {&args.a, &args.b, &args.out});
  dispatch<float, bfloat16>(args.a.dtype(), "mul", [&]<class T>() {
    if (args.out.dtype() == DType::f32)
      multiply<T, float>(launch, args);
    else
      multiply<T, T>(launch, args);
  });
}

// `width` values, again for each row; a multiple of N.
template <class From, class T>
struct Repeated {
  const From* from;
  T* out;
  std::int64_t width;
  float scale;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> values = load_values<N>(from, i % (width / N));
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] *= scale;
    return values;
  }
};

template <class From, class T>
struct Filled {
  const From* from;
  T* out;
  float scale;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t /*i*/) const {
    const float value = to_float(*from) * scale;
    Vector<float, N> values;
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = value;
    return values;
  }
};

void broadcast_rows(const BroadcastRowsArgs& args) {
  const OpLaunch launch("broadcast_rows", {&args.from, &args.out});
  dispatch<float, bfloat16>(args.from.dtype(), "broadcast_rows", [&]<class From>() {
    dispatch<float, bfloat16>(args.out.dtype(), "broadcast_rows", [&]<class T>() {
      constexpr int kWidest = static_cast<int>(std::max(sizeof(From), sizeof(T)));
      const From* from = args.from.data<From>();
      T* out = args.out.data<T>();
      const std::int64_t n = args.out.numel(), width = args.out.size(1);
      if (args.from.size(0) == 1)
        launch_map<kWidest>(launch, Filled<From, T>{from, out, args.scale}, n, {&args.out});
      else
        launch_map<kWidest>(launch, Repeated<From, T>{from, out, width, args.scale}, n, {&args.from, &args.out}, width);
    });
  });
}

QUENCH_CUDA_KERNEL(mul_slot, mul);
QUENCH_CUDA_KERNEL(broadcast_rows_slot, broadcast_rows);

}  // namespace
}  // namespace quench::cuda
