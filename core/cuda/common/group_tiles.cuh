#pragma once
// Tile lookup of grouped GEMMs.

#include <cstdint>

namespace quench::cuda {

struct GroupTile {
  int group = -1;          // -1: none
  std::int64_t row = 0;    // first row
  std::int64_t end = 0;    // end of the group
  std::int64_t first = 0;  // index of the group's first tile
  std::int64_t begin = 0;  // first row of the group
};

// Tile `tile` of groups cut into kRows-row tiles; warp collective. Past the last group: group == groups.
template <int kRows>
__device__ inline GroupTile find_group_tile(const std::int32_t* ends, int groups, std::int64_t rows,
                                            std::int64_t tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  std::int64_t before = 0;  // tiles of earlier groups
  for (int first = 0; first <= groups; first += 32) {
    const int group = first + lane;
    const std::int64_t begin = group > 0 && group <= groups ? ends[group - 1] : 0;
    const std::int64_t end = group < groups ? ends[group] : group == groups ? rows : begin;
    const auto tiles = static_cast<int>((end - begin + kRows - 1) / kRows);
    int inclusive = tiles;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFu, inclusive, offset);
      if (lane >= offset) inclusive += other;
    }
    const std::int64_t mine = before + inclusive - tiles;
    const bool here = tile >= mine && tile < mine + tiles;
    const unsigned found = __ballot_sync(0xFFFFFFFFu, here);
    if (found != 0) {
      const int source = __ffs(static_cast<int>(found)) - 1;
      GroupTile result;
      result.group = first + source;
      result.row = __shfl_sync(0xFFFFFFFFu, begin + (tile - mine) * kRows, source);
      result.end = __shfl_sync(0xFFFFFFFFu, end, source);
      result.first = __shfl_sync(0xFFFFFFFFu, mine, source);
      result.begin = __shfl_sync(0xFFFFFFFFu, begin, source);
      return result;
    }
    before += __shfl_sync(0xFFFFFFFFu, inclusive, 31);
  }
  return {};
}

[[nodiscard]] inline std::int64_t max_group_tiles(std::int64_t rows, std::int64_t groups, std::int64_t tile_rows) {
  return (rows + tile_rows - 1) / tile_rows + groups;
}

}  // namespace quench::cuda
