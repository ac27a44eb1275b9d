#pragma once
// Row tiles: a function of single rows, such as a feed-forward part, computed a tile of rows at a time, in the forward
// and the backward pass, so that its intermediates are those of one tile.

#include <cstdint>
#include <functional>

#include "autograd/tape.h"

namespace quench::autograd {

// Row n of the result depends on row n of x alone. `first`: the tile's first row of the whole. `again`: in the backward
// pass, which repeats the call that made the value.
using RowRegion = std::function<Variable(const Variable& x, std::int64_t first, bool again)>;

// Size of the tiles, and readers of the value.
struct RowTiling {
  std::int64_t rows = 0;  // rows of a tile, at least 1; the last one may have fewer
  // False if the value has no reader: it is left out (Variable::value() throws), and only the first tile is computed.
  bool value_needed = true;
};

// region(x), [N,M] of x [N,K], N > 0, without saved intermediates: x is saved, and the backward pass reruns `region`
// tile by tile from the first on, with the bits of the region called with the tile's rows. Gradients of parameters
// accumulate in that order, in their dtype, as over micro-batches. `region` must be a pure function of its rows and
// parameters, with keyed random draws: the pass of tile i is that of the tape + i * 2^20 (Tape::current_pass()).
Variable in_row_tiles(const RowRegion& region, const Variable& x, const RowTiling& tiling);

}  // namespace quench::autograd
