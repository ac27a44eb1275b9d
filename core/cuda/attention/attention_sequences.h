#pragma once
// Sequence lists as kernel parameters.

#include <algorithm>
#include <span>

#include "core/number/host_device.h"
#include "core/ops/attention.h"

namespace quench::cuda {

inline constexpr int kSequencesPerLaunch = 64;

struct SequenceTiles {
  int count = 0;
  int first_tile[kSequencesPerLaunch + 1] = {};  // last: tile count
  SequenceRange sequences[kSequencesPerLaunch] = {};
};
static_assert(sizeof(SequenceTiles) < 3000, "kernel parameters hold at most 4 KiB");

// launch(tiles) per batch of sequences; tiles cover `size` elements of length(sequence).
template <class Length, class Launch>
void for_sequence_tiles(std::span<const SequenceRange> sequences, std::int64_t size, const Length& length,
                        const Launch& launch) {
  SequenceTiles tiles;
  const auto flush = [&] {
    if (tiles.count > 0) launch(tiles);
    tiles = SequenceTiles{};
  };
  for (const SequenceRange& s : sequences) {
    const std::int64_t pieces = (length(s) + size - 1) / size;
    if (pieces == 0) continue;
    QUENCH_CHECK(pieces < (1 << 30), "attention: a sequence of {} rows", length(s));
    if (tiles.count == kSequencesPerLaunch || tiles.first_tile[tiles.count] > (1 << 30) - pieces) flush();
    tiles.sequences[tiles.count] = s;
    tiles.first_tile[tiles.count + 1] = tiles.first_tile[tiles.count] + static_cast<int>(pieces);
    ++tiles.count;
  }
  flush();
}

#if defined(__CUDACC__)
struct TileOfSequence {
  SequenceRange sequence;
  std::int64_t tile;
};

__device__ inline TileOfSequence find_tile(const SequenceTiles& tiles, int tile) {
  int low = 0, high = tiles.count;  // first_tile[low] <= tile < first_tile[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (tiles.first_tile[middle] <= tile ? low : high) = middle;
  }
  return {tiles.sequences[low], tile - tiles.first_tile[low]};
}

__device__ inline std::int64_t visible_keys(const SequenceRange& s, bool causal, std::int64_t query) {
  if (!causal) return s.k_length;
  const std::int64_t last = query + 1 + s.k_length - s.q_length;
  return last < 0 ? 0 : last < s.k_length ? last : s.k_length;
}
#endif

}  // namespace quench::cuda
