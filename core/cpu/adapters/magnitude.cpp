#include "core/ops/adapters/magnitude.h"

#include <cmath>

#include "core/cpu/parallel.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

void row_norms_kernel(const RowNormsArgs& args) {
  const std::int64_t n = args.x.size(0), k = args.x.size(1);
  float* out = args.out.data<float>();
  dispatch<float, bfloat16>(args.x.dtype(), "row_norms", [&]<class T>() {
    const T* x = args.x.data<T>();
    parallel_ranges(n, n * k, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row) {
        F32 sum{};
        for_vectors(k, [&](std::int64_t i, auto count) {
          const F32 values = load(x + row * k + i, count);
          sum = fma(values, values, sum);
        });
        out[row] = std::sqrt(reduce_add(sum));
      }
    });
  });
}

template <class T, class M>
void scale_lines(const ScaleByMagnitudeArgs& args) {
  const std::int64_t n = args.x.size(0), m = args.x.size(1), x_step = args.x.stride(0), out_step = args.out.stride(0);
  const T* x = args.x.data<T>();
  const T* bias = args.bias.defined() ? args.bias.data<T>() : nullptr;
  const M* magnitude = args.magnitude.defined() ? args.magnitude.data<M>() : nullptr;
  const float* norms = magnitude != nullptr ? args.norms.data<float>() : nullptr;
  T* out = args.out.data<T>();
  const bool by_row = args.by_row;
  parallel_ranges(n, n * m, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const bool row_factor = by_row && magnitude != nullptr;
      const F32 of_row = broadcast(row_factor ? static_cast<float>(magnitude[row]) / norms[row] : 1.0f);
      for_vectors(m, [&](std::int64_t i, auto count) {
        F32 values = load(x + row * x_step + i, count);
        if (row_factor)
          values *= of_row;
        else if (magnitude != nullptr)
          values *= load(magnitude + i, count) / load(norms + i, count);
        if (bias != nullptr) values += load(bias + i, count);
        store(out + row * out_step + i, values, count);
      });
    }
  });
}

void scale_by_magnitude_kernel(const ScaleByMagnitudeArgs& args) {
  const DType magnitude = args.magnitude.defined() ? args.magnitude.dtype() : DType::f32;
  dispatch<float, bfloat16>(args.x.dtype(), "scale_by_magnitude", [&]<class T>() {
    dispatch<float, bfloat16>(magnitude, "scale_by_magnitude", [&]<class M>() { scale_lines<T, M>(args); });
  });
}

template <class T, class G>
void column_dots(const MagnitudeGradientArgs& args) {
  const std::int64_t n = args.x.size(0), width = args.x.size(1), x_step = args.x.stride(0), dy_step = args.dy.stride(0);
  const T* x = args.x.data<T>();
  const T* dy = args.dy.data<T>();
  const RowParts parts(n);
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor partial = Tensor::empty({parts.count, width}, DType::f32);
  float* sums = partial.data<float>();
  parallel_ranges(parts.count, n * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const std::int64_t first = part * parts.rows, last = std::min(n, first + parts.rows);
      for_vectors(width, [&](std::int64_t i, auto count) {
        F32 sum{};
        for (std::int64_t row = first; row < last; ++row)
          sum = fma(load(dy + row * dy_step + i, count), load(x + row * x_step + i, count), sum);
        store(sums + part * width + i, sum, count);
      });
    }
  });
  const float* norms = args.norms.data<float>();
  G* out = args.out.data<G>();
  for_vectors(width, [&](std::int64_t i, auto count) {
    F32 total{};
    for (std::int64_t part = 0; part < parts.count; ++part) total += load(sums + part * width + i, count);
    total /= load(norms + i, count);
    if (args.accumulate) total += load(out + i, count);
    store(out + i, total, count);
  });
}

void magnitude_gradient_kernel(const MagnitudeGradientArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "magnitude_gradient", [&]<class T>() {
    dispatch<float, bfloat16>(args.out.dtype(), "magnitude_gradient", [&]<class G>() { column_dots<T, G>(args); });
  });
}

QUENCH_CPU_KERNEL(row_norms_slot, row_norms_kernel);
QUENCH_CPU_KERNEL(scale_by_magnitude_slot, scale_by_magnitude_kernel);
QUENCH_CPU_KERNEL(magnitude_gradient_slot, magnitude_gradient_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
