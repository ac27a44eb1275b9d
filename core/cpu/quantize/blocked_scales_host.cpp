// Block scales in 128 x 4 tiles.

#include <algorithm>

#include "core/number/blocked_scale.h"
#include "core/ops/quantize/blocked_scales.h"

namespace quench {
namespace {

void to_blocked_host(const BlockedScalesArgs& args) {
  const std::int64_t rows = args.scales.size(0), columns = args.scales.size(1);
  const auto* from = static_cast<const std::uint8_t*>(args.scales.raw_data());
  auto* to = static_cast<std::uint8_t*>(args.blocked.raw_data());
  std::fill_n(to, args.blocked.numel(), std::uint8_t{0});
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) to[blocked_scale_offset(r, c, columns)] = from[r * columns + c];
}

QUENCH_CPU_KERNEL(to_blocked_slot, to_blocked_host);

}  // namespace
}  // namespace quench
