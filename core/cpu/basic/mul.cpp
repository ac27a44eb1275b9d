#include "core/ops/basic/mul.h"

#include "core/cpu/basic/for_elements.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// body(row) for `rows` rows of `width` elements, in parallel.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t width, const Body& body) {
  parallel_ranges(rows, rows * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) body(row);
  });
}

template <class T, class Out>
void multiply(const MulArgs& args) {
  const T* a = args.a.data<T>();
  const T* b = args.b.data<T>();
  Out* out = args.out.data<Out>();
  if (args.b.shape() == args.a.shape()) {
    for_elements(args.out.numel(),
                 [=](std::int64_t i, auto count) { store(out + i, load(a + i, count) * load(b + i, count), count); });
    return;
  }
  const std::int64_t width = args.b.size(0);
  for_rows(args.out.numel() / width, width, [=](std::int64_t row) {
    const std::int64_t first = row * width;
    for_vectors(width, [=](std::int64_t i, auto count) {
      store(out + first + i, load(a + first + i, count) * load(b + i, count), count);
    });
  });
}

void mul_kernel(const MulArgs& args) {
  dispatch<float, bfloat16>(args.a.dtype(), "mul", [&]<class T>() {
    if (args.out.dtype() == DType::f32)
      multiply<T, float>(args);
    else
      multiply<T, T>(args);
  });
}

template <class From, class T>
void repeat(const BroadcastRowsArgs& args) {
  const From* from = args.from.data<From>();
  T* out = args.out.data<T>();
  const std::int64_t width = args.out.size(1);
  const float scale = args.scale;
  if (args.from.size(0) == 1) {
    const F32 value = broadcast(static_cast<float>(*from) * scale);
    for_elements(args.out.numel(), [=](std::int64_t i, auto count) { store(out + i, value, count); });
    return;
  }
  for_rows(args.out.size(0), width, [=](std::int64_t row) {
    for_vectors(
        width, [=](std::int64_t i, auto count) { store(out + row * width + i, load(from + i, count) * scale, count); });
  });
}

void broadcast_rows_kernel(const BroadcastRowsArgs& args) {
  dispatch<float, bfloat16>(args.from.dtype(), "broadcast_rows", [&]<class From>() {
    dispatch<float, bfloat16>(args.out.dtype(), "broadcast_rows", [&]<class T>() { repeat<From, T>(args); });
  });
}

QUENCH_CPU_KERNEL(mul_slot, mul_kernel);
QUENCH_CPU_KERNEL(broadcast_rows_slot, broadcast_rows_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
