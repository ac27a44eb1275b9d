#include "core/ops/dropout.h"

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void dropout_kernel(const DropoutArgs& args) {
  const std::int64_t n = args.x.numel(), blocks = (n + 3) / 4;
  const float factor = 1.0f / (1.0f - args.probability), probability = args.probability;
  dispatch<float, bfloat16>(args.x.dtype(), "dropout", [&]<class T>() {
    const T* x = args.x.data<T>();
    T* out = args.out.data<T>();
    parallel_ranges(blocks, n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const PhiloxBlock words = random_block(args.key, static_cast<std::uint64_t>(block));
        for (std::int64_t i = 4 * block; i < std::min(n, 4 * block + 4); ++i) {
          const bool stays = to_uniform(words[static_cast<std::uint64_t>(i % 4)]) >= probability;
          out[i] = T(stays ? static_cast<float>(x[i]) * factor : 0.0f);
        }
      }
    });
  });
}

QUENCH_CPU_KERNEL(dropout_slot, dropout_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
