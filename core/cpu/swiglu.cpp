#include "core/ops/swiglu.h"

#include "core/cpu/basic/activation.h"
#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

template <class T, GatedActivation kActivation>
void forward(const SwigluArgs& args) {
  const std::int64_t n = args.out.size(0), width = args.out.size(1);
  const T* gate_up = args.gate_up.data<T>();
  T* out = args.out.data<T>();
  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = gate_up + row * 2 * width;
      T* target = out + row * width;
      for_vectors(width, [&](std::int64_t i, auto count) {
        const F32 g = load(gate + i, count);
        store(target + i, activate<kActivation>(g).value * load(gate + width + i, count), count);
      });
    }
  });
}

template <class T, GatedActivation kActivation>
void backward(const SwigluBackwardArgs& args) {
  const std::int64_t n = args.dout.size(0), width = args.dout.size(1);
  const T* gate_up = args.gate_up.data<T>();
  const T* dout = args.dout.data<T>();
  T* dgate_up = args.dgate_up.data<T>();
  parallel_ranges(n, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* gate = gate_up + row * 2 * width;
      const T* gradient = dout + row * width;
      T* target = dgate_up + row * 2 * width;
      for_vectors(width, [&](std::int64_t i, auto count) {
        const F32 g = load(gate + i, count), up = load(gate + width + i, count), d = load(gradient + i, count);
        const Activated active = activate<kActivation>(g);
        store(target + i, d * up * active.slope, count);
        store(target + width + i, d * active.value, count);
      });
    }
  });
}

void swiglu_kernel(const SwigluArgs& given) {
  SwigluArgs args = given;
  if (!args.out.defined())
    args.out = Tensor::empty({args.gate_up.size(0), args.gate_up.size(1) / 2}, args.gate_up.dtype());
  dispatch<float, bfloat16>(args.out.dtype(), "swiglu", [&]<class T>() {
    if (args.activation == GatedActivation::silu)
      forward<T, GatedActivation::silu>(args);
    else
      forward<T, GatedActivation::gelu_tanh>(args);
  });
  fill_quant_outputs(args.quant_outputs, args.out);
}
void swiglu_backward_kernel(const SwigluBackwardArgs& given) {
  SwigluBackwardArgs args = given;
  if (!args.dgate_up.defined()) args.dgate_up = Tensor::empty_like(args.gate_up);
  dispatch<float, bfloat16>(args.dout.dtype(), "swiglu_backward", [&]<class T>() {
    if (args.activation == GatedActivation::silu)
      backward<T, GatedActivation::silu>(args);
    else
      backward<T, GatedActivation::gelu_tanh>(args);
  });
  fill_quant_outputs(args.quant_outputs, args.dgate_up);
}

QUENCH_CPU_KERNEL(swiglu_slot, swiglu_kernel);
QUENCH_CPU_KERNEL(swiglu_backward_slot, swiglu_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
