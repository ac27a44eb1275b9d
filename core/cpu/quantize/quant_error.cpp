#include "core/ops/quantize/quant_error.h"

#include <cmath>
#include <vector>

#include "core/cpu/quantize/quantize_common.h"

namespace quench {
namespace {

constexpr std::int64_t kChunk = 64 * 1024;  // per partial sum

// Elements [begin, end). Scale: scales[row * row_step + column * column_step].
template <class Element, class T>
QuantError error_of(const T* x, const std::uint8_t* codes, const float* scales, std::int64_t columns,
                    std::int64_t row_step, std::int64_t column_step, std::int64_t begin, std::int64_t end) {
  QuantError sum;
  Magnitude<T> most = 0;
  for (std::int64_t i = begin; i < end;) {
    const std::int64_t row = i / columns, row_end = std::min(end, (row + 1) * columns);
    const float* scale = scales + row * row_step + (i - row * columns) * column_step;
    for (; i < row_end; ++i, scale += column_step) {
      const auto value = static_cast<float>(x[i]);
      const float lost = value - decode_scaled<Element>(codes[i], *scale);
      sum.signal += static_cast<double>(value) * value;
      sum.noise += static_cast<double>(lost) * lost;
      sum.saturated += is_clipped<Element>(value * encode_factor<Element>(*scale)) ? 1 : 0;
      sum.underflows += is_zero<Element>(codes[i]) && value != 0.0f && std::isfinite(value) ? 1 : 0;
      most = std::max(most, magnitude(x[i]));
    }
  }
  sum.most = magnitude_value(most);
  return sum;
}

void quant_error_cpu(const QuantErrorArgs& args) {
  const std::int64_t count = args.x.numel(), columns = args.x.size(1), chunks = (count + kChunk - 1) / kChunk;
  const Granularity granularity = args.q.format().granularity;
  const std::int64_t row_step = granularity == Granularity::row ? 1 : 0,
                     column_step = granularity == Granularity::column ? 1 : 0;
  const auto* codes = static_cast<const std::uint8_t*>(args.q.payload().raw_data());
  const float* scales = args.q.scales().data<float>();
  std::vector<QuantError> parts(static_cast<std::size_t>(chunks));
  dispatch_quantize<E4m3, E5m2, Int8Code>(
      "quant_error", args.x.dtype(), args.q.format().element, [&]<class T, class Element>() {
        const T* x = args.x.data<T>();
#pragma omp parallel for schedule(static) if (count >= kParallelElements)
        for (std::int64_t chunk = 0; chunk < chunks; ++chunk)
          parts[static_cast<std::size_t>(chunk)] = error_of<Element>(
              x, codes, scales, columns, row_step, column_step, chunk * kChunk, std::min(count, (chunk + 1) * kChunk));
      });
  QuantError total;
  for (const QuantError& part : parts) {
    total.signal += part.signal;
    total.noise += part.noise;
    total.saturated += part.saturated;
    total.underflows += part.underflows;
    if (part.most > total.most || std::isnan(part.most)) total.most = part.most;
  }
  auto* out = args.out.data<double>();
  for (const double field : {total.signal, total.noise, total.saturated, total.underflows, total.most}) *out++ = field;
}

QUENCH_CPU_KERNEL(quant_error_slot, quant_error_cpu);

}  // namespace
}  // namespace quench
