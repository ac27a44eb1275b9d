// Once per step: not vectorized.

#include "core/ops/quantize/sparsity_2_4.h"

namespace quench::cpu {
namespace {

constexpr std::int64_t kParallelTiles = 4096;

template <class Word>
void keep(const Prune24Args& args) {
  constexpr Word kMagnitude = static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)));
  const auto* x = static_cast<const Word*>(args.x.raw_data());
  auto* out = static_cast<Word*>(args.out.raw_data());
  const std::int64_t columns = args.x.size(1);
  if (args.rule == Sparsity24::magnitude) {
    const std::int64_t fours = args.x.numel() / 4;
#pragma omp parallel for schedule(static) if (fours > kParallelTiles)
    for (std::int64_t at = 0; at < fours; ++at) {
      std::uint32_t magnitudes[4];
      for (int i = 0; i < 4; ++i) magnitudes[i] = x[4 * at + i] & kMagnitude;
      const std::uint32_t kept = kept_of_four(magnitudes);
      for (int i = 0; i < 4; ++i) out[4 * at + i] = (kept >> i & 1u) != 0 ? x[4 * at + i] : Word{0};
    }
    return;
  }
  const std::int64_t tile_rows = args.x.size(0) / 4, tile_columns = columns / 4;
#pragma omp parallel for schedule(static) if (tile_rows * tile_columns > kParallelTiles)
  for (std::int64_t row = 0; row < tile_rows; ++row)
    for (std::int64_t column = 0; column < tile_columns; ++column) {
      const std::int64_t first = 4 * row * columns + 4 * column;
      std::uint32_t magnitudes[16];
      for (int i = 0; i < 16; ++i) magnitudes[i] = x[first + i / 4 * columns + i % 4] & kMagnitude;
      const std::uint32_t kept = kept_of_tile(magnitudes);
      for (int i = 0; i < 16; ++i) {
        const std::int64_t at = first + i / 4 * columns + i % 4;
        out[at] = (kept >> i & 1u) != 0 ? x[at] : Word{0};
      }
    }
}

void prune_2_4_cpu(const Prune24Args& args) {
  if (args.x.dtype() == DType::f32)
    keep<std::uint32_t>(args);
  else
    keep<std::uint16_t>(args);
}

QUENCH_CPU_KERNEL(prune_2_4_slot, prune_2_4_cpu);

}  // namespace
}  // namespace quench::cpu
