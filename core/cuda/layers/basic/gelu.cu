#include "core/ops/basic/gelu.h"

#include <numbers>

#include "core/cuda/common/map.cuh"
#include "core/cuda/common/swiglu_math.cuh"

namespace quench::cuda {
namespace {

// erfc keeps the relative accuracy of small P(x).
__device__ inline float normal_cdf(float x) {
  constexpr float kScale = -0.5f * std::numbers::sqrt2_v<float>;
  return erfcf(x * kScale) * 0.5f;
}

template <GeluForm kForm>
__device__ inline float gelu_of(float x) {
  if constexpr (kForm == GeluForm::tanh)
    return activate<GatedActivation::gelu_tanh>(x).value;
  else
    return x * normal_cdf(x);
}

template <GeluForm kForm>
__device__ inline float gelu_slope(float x) {
  if constexpr (kForm == GeluForm::tanh) {
    return activate<GatedActivation::gelu_tanh>(x).slope;
  } else {
    // 1 / sqrt(2 pi)
    constexpr float kDensity = 0.5f * std::numbers::sqrt2_v<float> * std::numbers::inv_sqrtpi_v<float>;
    return fmaf(x * kDensity, expf(x * x * -0.5f), normal_cdf(x));
  }
}

template <class T, GeluForm kForm>
struct Gelu {
  const T* x;
  T* out;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> values = load_values<N>(x, i);
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = gelu_of<kForm>(values[j]);
    return values;
  }
};

template <class T, GeluForm kForm>
struct GeluGradient {
  const T* dy;
  const T* x;
  T* out;
  template <int N>
  __device__ Vector<float, N> compute(std::int64_t i) const {
    Vector<float, N> gradient = load_values<N>(dy, i);
    const Vector<float, N> values = load_values<N>(x, i);
#pragma unroll
    for (int j = 0; j < N; ++j) gradient[j] *= gelu_slope<kForm>(values[j]);
    return gradient;
  }
};

// body.operator()<T, form>() of the arguments' dtype and form.
template <class Body>
void choose_form(DType dtype, GeluForm form, const Body& body) {
  dispatch<float, bfloat16>(dtype, "gelu", [&]<class T>() {
    if (form == GeluForm::tanh)
      body.template operator()<T, GeluForm::tanh>();
    else
      body.template operator()<T, GeluForm::exact>();
  });
}

void gelu(const GeluArgs& args) {
  const OpLaunch launch("gelu", {&args.x, &args.y});
  choose_form(args.y.dtype(), args.form, [&]<class T, GeluForm kForm>() {
    launch_map<static_cast<int>(sizeof(T))>(launch, Gelu<T, kForm>{args.x.data<T>(), args.y.data<T>()}, args.y.numel(),
                                            {&args.x, &args.y});
  });
}

void gelu_backward(const GeluBackwardArgs& args) {
  const OpLaunch launch("gelu_backward", {&args.dy, &args.x, &args.dx});
  choose_form(args.dx.dtype(), args.form, [&]<class T, GeluForm kForm>() {
    launch_map<static_cast<int>(sizeof(T))>(
        launch, GeluGradient<T, kForm>{args.dy.data<T>(), args.x.data<T>(), args.dx.data<T>()}, args.dx.numel(),
        {&args.dy, &args.x, &args.dx});
  });
}

QUENCH_CUDA_KERNEL(gelu_slot, gelu);
QUENCH_CUDA_KERNEL(gelu_backward_slot, gelu_backward);

}  // namespace
}  // namespace quench::cuda
