// Two passes over a group's rows.

#include <omp.h>

#include <cmath>
#include <cstring>

#include "core/number/float8.h"
#include "core/number/float_types.h"
#include "core/ops/experts/round_groups.h"

namespace quench {
namespace {

constexpr std::int64_t kStrip = 64;

template <class Element, class T>
void round_strip(const RoundGroupsArgs& args, std::int64_t first, std::int64_t width) {
  const std::int64_t rows = args.x.size(0), stride = args.x.size(1);
  const T* x = args.x.data<T>() + first;
  T* out = args.out.data<T>() + first;
  std::int64_t begin = 0;
  for (std::int64_t group = 0; group < args.ends.size(0); ++group) {
    const std::int64_t end = args.ends.data<std::int32_t>()[group];
    QUENCH_CHECK(end >= begin && end <= rows, "round_groups: group {} ends at row {}, after {}, of {}", group, end,
                 begin, rows);
    float scales[kStrip] = {};
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t c = 0; c < width; ++c) {
        const float magnitude = std::abs(static_cast<float>(x[r * stride + c]));
        // NaN propagates.
        if (!(magnitude <= scales[c]) && scales[c] == scales[c]) scales[c] = magnitude;
      }
    for (std::int64_t c = 0; c < width; ++c) scales[c] = float8_scale(scales[c], Element::kMax, args.power_of_two);
    for (std::int64_t r = begin; r < end; ++r)
      for (std::int64_t c = 0; c < width; ++c)
        out[r * stride + c] =
            T(Element::decode(Element::encode(static_cast<float>(x[r * stride + c]) * scales[c])) / scales[c]);
    begin = end;
  }
  for (std::int64_t r = begin; r < rows; ++r)
    std::memset(static_cast<void*>(out + r * stride), 0, static_cast<std::size_t>(width) * sizeof(T));
}

void round_groups_kernel(const RoundGroupsArgs& args) {
  const std::int64_t columns = args.x.size(1);
  dispatch<float, bfloat16>(args.x.dtype(), "round_groups", [&]<class T>() {
#pragma omp parallel for schedule(static) if (args.x.numel() > 16384 && omp_in_parallel() == 0)
    for (std::int64_t first = 0; first < columns; first += kStrip) {
      const std::int64_t width = std::min(kStrip, columns - first);
      args.element == ElementFormat::e4m3 ? round_strip<E4m3, T>(args, first, width)
                                          : round_strip<E5m2, T>(args, first, width);
    }
  });
}

QUENCH_CPU_KERNEL(round_groups_slot, round_groups_kernel);

}  // namespace
}  // namespace quench
