#include "core/ops/soft_cap.h"

#include "core/cpu/parallel.h"
#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// body(first element, width) for every row, in parallel.
template <class Body>
void for_logit_rows(const Tensor& x, const Body& body) {
  const std::int64_t width = x.size(1);
  parallel_ranges(x.size(0), x.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row * width, width);
  });
}

void soft_cap_kernel(const SoftCapArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "soft_cap", [&]<class T>() {
    T* x = args.x.data<T>();
    const float inner = args.factor / args.cap, cap = args.cap;
    for_logit_rows(args.x, [=](std::int64_t first, std::int64_t width) {
      for_vectors(width, [=](std::int64_t i, auto count) {
        store(x + first + i, cap * tanh(inner * load(x + first + i, count)), count);
      });
    });
  });
}

void soft_cap_backward_kernel(const SoftCapBackwardArgs& args) {
  dispatch<float, bfloat16>(args.dx.dtype(), "soft_cap_backward", [&]<class T>() {
    T* dx = args.dx.data<T>();
    const T* y = args.y.data<T>();
    const float factor = args.factor, cap = args.cap;
    for_logit_rows(args.dx, [=](std::int64_t first, std::int64_t width) {
      for_vectors(width, [=](std::int64_t i, auto count) {
        const F32 bounded = load(y + first + i, count) / cap;
        store(dx + first + i, load(dx + first + i, count) * (factor * (1.0f - bounded * bounded)), count);
      });
    });
  });
}

QUENCH_CPU_KERNEL(soft_cap_slot, soft_cap_kernel);
QUENCH_CPU_KERNEL(soft_cap_backward_slot, soft_cap_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
