// Four elements, or one tile, per thread.

#include "core/cuda/quantize/quantize_common.cuh"
#include "core/ops/quantize/sparsity_2_4.h"

namespace quench::cuda {
namespace {

constexpr int kThreads = 256;

template <class Word>
inline constexpr Word kMagnitude = static_cast<Word>(~(Word{1} << (8 * sizeof(Word) - 1)));

template <class Word>
inline constexpr int kWordsOfPiece = 16 / static_cast<int>(sizeof(Word));

// 16 bytes per thread.
template <class Word>
__global__ __launch_bounds__(kThreads) void wide_fours_kernel(const Word* x, Word* out, std::int64_t pieces) {
  constexpr int kBits = 8 * static_cast<int>(sizeof(Word)), kPerWord = 32 / kBits;
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t p = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; p < pieces; p += step) {
    Packed<Word> packed = load_packed(x, p);
#pragma unroll
    for (int first = 0; first < kWordsOfPiece<Word>; first += 4) {
      std::uint32_t magnitudes[4];
#pragma unroll
      for (int i = 0; i < 4; ++i)
        magnitudes[i] = packed.words[(first + i) / kPerWord] >> ((first + i) % kPerWord * kBits) & kMagnitude<Word>;
      const std::uint32_t kept = kept_of_four(magnitudes);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if ((kept >> i & 1u) == 0)
          packed.words[(first + i) / kPerWord] &=
              ~(std::uint32_t{static_cast<Word>(~Word{0})} << ((first + i) % kPerWord * kBits));
    }
    store_packed(out, p, packed);
  }
}

// Unaligned fallback.
template <class Word>
__global__ __launch_bounds__(kThreads) void fours_kernel(const Word* x, Word* out, std::int64_t fours) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= fours) return;
  std::uint32_t magnitudes[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) magnitudes[i] = x[4 * at + i] & kMagnitude<Word>;
  const std::uint32_t kept = kept_of_four(magnitudes);
#pragma unroll
  for (int i = 0; i < 4; ++i) out[4 * at + i] = (kept >> i & 1u) != 0 ? x[4 * at + i] : Word{0};
}

template <class Word>
__global__ __launch_bounds__(kThreads) void tiles_kernel(const Word* x, Word* out, std::int64_t tiles,
                                                         std::int64_t columns) {
  const std::int64_t tile = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (tile >= tiles) return;
  const std::int64_t tile_columns = columns / 4, first = tile / tile_columns * 4 * columns + tile % tile_columns * 4;
  std::uint32_t magnitudes[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) magnitudes[i] = x[first + i / 4 * columns + i % 4] & kMagnitude<Word>;
  const std::uint32_t kept = kept_of_tile(magnitudes);
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const std::int64_t at = first + i / 4 * columns + i % 4;
    out[at] = (kept >> i & 1u) != 0 ? x[at] : Word{0};
  }
}

template <class Word>
void keep(const Prune24Args& args, const OpLaunch& launch) {
  const auto* x = static_cast<const Word*>(args.x.raw_data());
  auto* out = static_cast<Word*>(args.out.raw_data());
  const auto blocks = [](std::int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); };
  const std::int64_t fours = args.x.numel() / 4, tiles = args.x.numel() / 16;
  const std::int64_t pieces = args.x.numel() / kWordsOfPiece<Word>;
  if (args.rule == Sparsity24::magnitude && args.x.numel() % kWordsOfPiece<Word> == 0 && aligned(x) && aligned(out))
    launch(wide_fours_kernel<Word>, strided_grid(launch.device(), pieces, kThreads, 8, 4), kThreads, 0, x, out, pieces);
  else if (args.rule == Sparsity24::magnitude)
    launch(fours_kernel<Word>, blocks(fours), kThreads, 0, x, out, fours);
  else
    launch(tiles_kernel<Word>, blocks(tiles), kThreads, 0, x, out, tiles, args.x.size(1));
}

void prune_2_4_cuda(const Prune24Args& args) {
  const OpLaunch launch("prune_2_4", {&args.x, &args.out});
  if (args.x.dtype() == DType::f32)
    keep<std::uint32_t>(args, launch);
  else
    keep<std::uint16_t>(args, launch);
}

QUENCH_CUDA_KERNEL(prune_2_4_slot, prune_2_4_cuda);

}  // namespace
}  // namespace quench::cuda
