#include "core/ops/basic/gelu.h"

#include <cmath>
#include <numbers>

#include "core/cpu/basic/activation.h"
#include "core/cpu/basic/for_elements.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// erfc keeps the relative accuracy of small P(x).
QUENCH_INLINE F32 normal_cdf(F32 x) {
  constexpr float kScale = -0.5f * std::numbers::sqrt2_v<float>;
  F32 p = x * kScale;
  for (int i = 0; i < kLanes; ++i) p[i] = std::erfc(p[i]);
  return p * 0.5f;
}

template <GeluForm kForm>
QUENCH_INLINE F32 gelu_of(F32 x) {
  if constexpr (kForm == GeluForm::tanh)
    return activate<GatedActivation::gelu_tanh>(x).value;
  else
    return x * normal_cdf(x);
}

template <GeluForm kForm>
QUENCH_INLINE F32 gelu_slope(F32 x) {
  if constexpr (kForm == GeluForm::tanh) {
    return activate<GatedActivation::gelu_tanh>(x).slope;
  } else {
    // 1 / sqrt(2 pi)
    constexpr float kDensity = 0.5f * std::numbers::sqrt2_v<float> * std::numbers::inv_sqrtpi_v<float>;
    return fma(x * kDensity, exp(x * x * -0.5f), normal_cdf(x));
  }
}

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

void gelu_kernel(const GeluArgs& args) {
  choose_form(args.y.dtype(), args.form, [&]<class T, GeluForm kForm>() {
    const T* x = args.x.data<T>();
    T* y = args.y.data<T>();
    for_elements(args.y.numel(),
                 [=](std::int64_t i, auto count) { store(y + i, gelu_of<kForm>(load(x + i, count)), count); });
  });
}

void gelu_backward_kernel(const GeluBackwardArgs& args) {
  choose_form(args.dx.dtype(), args.form, [&]<class T, GeluForm kForm>() {
    const T* dy = args.dy.data<T>();
    const T* x = args.x.data<T>();
    T* dx = args.dx.data<T>();
    for_elements(args.dx.numel(), [=](std::int64_t i, auto count) {
      store(dx + i, load(dy + i, count) * gelu_slope<kForm>(load(x + i, count)), count);
    });
  });
}

QUENCH_CPU_KERNEL(gelu_slot, gelu_kernel);
QUENCH_CPU_KERNEL(gelu_backward_slot, gelu_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
