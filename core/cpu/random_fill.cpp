#include "core/ops/weights/random_fill.h"

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void random_fill_kernel(const RandomFillArgs& args) {
  const std::int64_t n = args.out.numel(), skipped = static_cast<std::int64_t>(args.first % 4);
  const std::uint64_t first_block = args.first / 4;
  dispatch<float, bfloat16>(args.out.dtype(), "random_fill", [&]<class T>() {
    T* out = args.out.data<T>() - skipped;
    parallel_ranges((skipped + n + 3) / 4, n, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t block = begin; block < end; ++block) {
        const RandomDraws draws =
            random_draws(args.key, first_block + static_cast<std::uint64_t>(block), args.distribution);
        for (std::int64_t i = std::max(4 * block, skipped); i < std::min(4 * block + 4, skipped + n); ++i)
          out[i] = T(args.scale * draws.values[i % 4]);
      }
    });
  });
}

QUENCH_CPU_KERNEL(random_fill_slot, random_fill_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
