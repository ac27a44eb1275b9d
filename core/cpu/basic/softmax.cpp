#include "core/ops/basic/softmax.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/cpu/row_sum.h"
#include "core/cpu/vector_math.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Lanes from `count` on become `rest`: partial loads fill them with 0.
QUENCH_INLINE F32 with_rest(F32 x, std::int64_t count, float rest) {
  return count < kLanes ? select(lane_numbers() < static_cast<std::int32_t>(count), x, broadcast(rest)) : x;
}

template <class T>
void softmax_row(const T* x, T* y, std::int64_t width) {
  F32 most = broadcast(-INFINITY);
  RowSum sum;
  for_vectors(width,
              [&](std::int64_t i, auto count) { most = max(most, with_rest(load(x + i, count), count, -INFINITY)); });
  const F32 shift = broadcast(reduce_max(most));
  for_vectors(width,
              [&](std::int64_t i, auto count) { sum.add(with_rest(exp(load(x + i, count) - shift), count, 0.0f)); });
  const F32 factor = broadcast(1.0f / sum.value());
  for_vectors(width,
              [&](std::int64_t i, auto count) { store(y + i, exp(load(x + i, count) - shift) * factor, count); });
}

template <class T>
void softmax_row_backward(const T* dy, const T* y, T* dx, std::int64_t width) {
  F32 sums{};
  for_vectors(width, [&](std::int64_t i, auto count) { sums = fma(load(dy + i, count), load(y + i, count), sums); });
  const F32 shift = broadcast(reduce_add(sums));
  for_vectors(width, [&](std::int64_t i, auto count) {
    store(dx + i, load(y + i, count) * (load(dy + i, count) - shift), count);
  });
}

// body(first element, width) for every row, in parallel.
template <class Body>
void for_matrix_rows(const Tensor& matrix, const Body& body) {
  const std::int64_t width = matrix.size(1);
  parallel_ranges(matrix.size(0), matrix.numel(), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row * width, width);
  });
}

void softmax_kernel(const SoftmaxArgs& args) {
  dispatch<float, bfloat16>(args.y.dtype(), "softmax", [&]<class T>() {
    const T* x = args.x.data<T>();
    T* y = args.y.data<T>();
    for_matrix_rows(args.y, [=](std::int64_t first, std::int64_t width) { softmax_row(x + first, y + first, width); });
  });
}

void softmax_backward_kernel(const SoftmaxBackwardArgs& args) {
  dispatch<float, bfloat16>(args.dx.dtype(), "softmax_backward", [&]<class T>() {
    const T* dy = args.dy.data<T>();
    const T* y = args.y.data<T>();
    T* dx = args.dx.data<T>();
    for_matrix_rows(args.dx, [=](std::int64_t first, std::int64_t width) {
      softmax_row_backward(dy + first, y + first, dx + first, width);
    });
  });
}

QUENCH_CPU_KERNEL(softmax_slot, softmax_kernel);
QUENCH_CPU_KERNEL(softmax_backward_slot, softmax_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
