#include "core/ops/global_norm.h"

#include <cmath>
#include <limits>

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Per partial sum.
constexpr std::int64_t kChunk = 16 * 1024;

// Half of F32's lanes.
using F64 = double __attribute__((vector_size(kLanes * 4)));
using HalfF32 = float __attribute__((vector_size(kLanes * 2)));
struct Halves {
  HalfF32 low, high;
};

template <class T>
double chunk_squares(const T* x, std::int64_t n) {
  F64 low{}, high{};
  for_vectors(n, [&](std::int64_t i, auto count) {
    const auto halves = std::bit_cast<Halves>(load(x + i, count));
    const F64 a = __builtin_convertvector(halves.low, F64), b = __builtin_convertvector(halves.high, F64);
    low += a * a;  // exact: 24-bit mantissas squared fit into 53 bits
    high += b * b;
  });
  double sum = 0;
  for (int i = 0; i < kLanes / 2; ++i) sum += low[i] + high[i];
  return sum;
}

void squared_norm_kernel(const SquaredNormArgs& args) {
  const MemoryScope scope(MemoryCategory::workspace);
  std::int64_t chunks = 0, elements = 0;
  for (const Tensor& t : args.tensors) {
    chunks += (t.numel() + kChunk - 1) / kChunk;
    elements += t.numel();
  }
  const Tensor partial = Tensor::empty({std::max<std::int64_t>(chunks, 1)}, DType::f64);
  auto* sums = partial.data<double>();
  parallel_ranges(chunks, elements, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t first = 0;  // index of the first chunk
    for (const Tensor& t : args.tensors) {
      const std::int64_t n = t.numel(), count = (n + kChunk - 1) / kChunk;
      for (std::int64_t chunk = std::max(begin, first); chunk < std::min(end, first + count); ++chunk) {
        const std::int64_t offset = (chunk - first) * kChunk, length = std::min(kChunk, n - offset);
        sums[chunk] = t.dtype() == DType::f32 ? chunk_squares(t.data<float>() + offset, length)
                                              : chunk_squares(t.data<bfloat16>() + offset, length);
      }
      first += count;
    }
  });
  double total = 0;
  for (std::int64_t i = 0; i < chunks; ++i) total += sums[i];
  *args.result.data<double>() = total;
}

void clip_scale_kernel(const ClipScaleArgs& args) {
  const double norm = std::sqrt(*args.squared_norm.data<double>());
  *args.norm.data<float>() = static_cast<float>(norm);
  float scale = 1.0f;
  if (!std::isfinite(static_cast<float>(norm)))
    scale = std::numeric_limits<float>::quiet_NaN();
  else if (args.max_norm > 0.0f)
    scale = std::min(1.0f, args.max_norm / (static_cast<float>(norm) + 1e-6f));
  *args.scale.data<float>() = scale;
}

QUENCH_CPU_KERNEL(squared_norm_slot, squared_norm_kernel);
QUENCH_CPU_KERNEL(clip_scale_slot, clip_scale_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
