#pragma once
// Numbers of one GGUF block before they are packed into its bytes: what a fit (block_fits.h) leaves and a layout
// (block_layouts.h) takes.

#include <cstdint>

#include "core/gguf_types/group_team.h"

namespace quench {

// Groups of Size elements; codes are those in the file, in the order of elements.
template <int Size, int Groups>
struct BlockNumbers {
  float unit, minimum;  // scale, or unit of the groups' scales; offset, or unit of their minima
  std::int8_t scales[Groups], minima[Groups];
  std::uint8_t codes[Size * Groups];
};

}  // namespace quench
