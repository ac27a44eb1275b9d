#include "core/ops/kv_cache/hadamard.h"

#include <vector>

#include "core/cpu/parallel.h"
#include "core/number/hadamard.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void transform(float* x, std::int64_t block) {
  for (std::int64_t h = 1; h < block; h *= 2)
    for (std::int64_t first = 0; first < block; first += 2 * h)
      for (std::int64_t i = first; i < first + h; ++i) {
        const float a = x[i], b = x[i + h];
        x[i] = a + b;
        x[i + h] = a - b;
      }
}

template <class T>
void transform_heads(const Tensor& x) {
  const std::int64_t heads = x.size(1), dim = x.size(2), block = hadamard_block(dim);
  const float factor = hadamard_factor(block);
  parallel_ranges(x.size(0), x.numel() * 8, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(dim));
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t head = 0; head < heads; ++head) {
        T* const to = x.data<T>() + row * x.stride(0) + head * x.stride(1);
        for (std::int64_t d = 0; d < dim; ++d) values[static_cast<std::size_t>(d)] = static_cast<float>(to[d]);
        for (std::int64_t d = 0; d < dim; d += block) transform(values.data() + d, block);
        for (std::int64_t d = 0; d < dim; ++d) to[d] = T(values[static_cast<std::size_t>(d)] * factor);
      }
  });
}

void hadamard_kernel(const HadamardArgs& args) {
  args.x.dtype() == DType::f32 ? transform_heads<float>(args.x) : transform_heads<bfloat16>(args.x);
}

QUENCH_CPU_KERNEL(hadamard_slot, hadamard_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
