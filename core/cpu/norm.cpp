#include "core/ops/norm.h"

#include <cmath>

#include "core/cpu/parallel.h"
#include "core/cpu/simd.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Rows of [N,H] or [N,heads,H], contiguous last axis, indexed 0 .. N*heads-1.
template <class T>
class NormView {
 public:
  explicit NormView(const Tensor& t) {
    if (!t.defined()) return;
    base_ = t.data<T>();
    outer_ = t.stride(0);
    if (t.rank() == 3) {
      inner_count_ = t.size(1);
      inner_ = t.stride(1);
    }
  }
  T* operator[](std::int64_t row) const {
    if (inner_count_ == 1) return base_ + row * outer_;
    return base_ + row / inner_count_ * outer_ + row % inner_count_ * inner_;
  }
  explicit operator bool() const { return base_ != nullptr; }

 private:
  T* base_ = nullptr;
  std::int64_t outer_ = 0;
  std::int64_t inner_ = 0;
  std::int64_t inner_count_ = 1;
};

// Normalized value times weight; kF32: without a rounding between the two.
template <class T, bool kF32>
QUENCH_INLINE F32 weighted(F32 normalized, F32 weight) {
  if constexpr (kF32)
    return normalized * weight;
  else
    return round_to<T>(normalized) * weight;
}

template <class T, bool kF32>
void normalize_rows(const RmsNormArgs& args) {
  const std::int64_t width = args.x.size(-1), rows = args.x.numel() / width;
  const NormView<T> x(args.x), residual(args.residual), sum(args.sum), y(args.y);
  const T* weight = args.weight.data<T>();
  float* rstd = args.rstd.data<float>();
  const float eps = args.eps, offset = args.weight_offset;
  parallel_ranges(rows, rows * width, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin; row < end; ++row) {
      const T* source = x[row];
      F32 squares[2] = {};
      if (residual) {
        T* target = sum[row];
        const T* other = residual[row];
        for_vectors(width, [&](std::int64_t i, auto count) {
          const F32 value = round_to<T>(load(source + i, count) + load(other + i, count));
          store(target + i, value, count);
          squares[i / kLanes % 2] = fma(value, value, squares[i / kLanes % 2]);
        });
        source = target;
      } else {
        for_vectors(width, [&](std::int64_t i, auto count) {
          const F32 value = load(source + i, count);
          squares[i / kLanes % 2] = fma(value, value, squares[i / kLanes % 2]);
        });
      }
      const float mean = reduce_add(squares[0] + squares[1]) / static_cast<float>(width);
      const float inverse = 1.0f / std::sqrt(mean + eps);
      rstd[row] = inverse;
      T* out = y[row];
      for_vectors(width, [&](std::int64_t i, auto count) {
        store(out + i, weighted<T, kF32>(load(source + i, count) * inverse, load(weight + i, count) + offset), count);
      });
    }
  });
}

void rms_norm_kernel(const RmsNormArgs& given) {
  RmsNormArgs args = given;
  if (!args.y.defined()) args.y = Tensor::empty(args.x.shape(), args.x.dtype());
  dispatch<float, bfloat16>(args.x.dtype(), "rms_norm", [&]<class T>() {
    args.f32_weight ? normalize_rows<T, true>(args) : normalize_rows<T, false>(args);
  });
  fill_quant_outputs(args.quant_outputs, args.y);
}

// With xhat = x rstd and u = dy (weight + offset): dx = rstd (u - xhat mean(u xhat)), dweight = sum over rows of dy
// xhat.
template <class T, bool kF32>
void backward_rows(const RmsNormBackwardArgs& args) {
  const std::int64_t width = args.x.size(-1), rows = args.x.numel() / width;
  const NormView<T> dy(args.dy), x(args.x), dsum(args.dsum), dx(args.dx), y(args.y);
  const T* weight = args.weight.data<T>();
  const float* rstd = args.rstd.data<float>();
  const float offset = args.weight_offset;

  const RowParts parts(rows);
  const std::int64_t padded = (width + kLanes - 1) / kLanes * kLanes;
  const bool wanted = args.dweight.defined();
  const MemoryScope scope(MemoryCategory::workspace);
  const Tensor partial = wanted ? Tensor::empty({parts.count, padded}, DType::f32) : Tensor();

  parallel_ranges(parts.count, rows * width, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      float* sums = wanted ? partial.data<float>() + part * padded : nullptr;
      if (wanted) std::fill(sums, sums + padded, 0.0f);
      const std::int64_t end = std::min(rows, (part + 1) * parts.rows);
      for (std::int64_t row = part * parts.rows; row < end; ++row) {
        const T* g = dy[row];
        const T* value = x[row];
        const float inverse = rstd[row];
        F32 dots[2] = {};
        for_vectors(width, [&](std::int64_t i, auto count) {
          const F32 gradient = load(g + i, count), input = load(value + i, count);
          dots[i / kLanes % 2] = fma(gradient * (load(weight + i, count) + offset), input, dots[i / kLanes % 2]);
          if (wanted)
            store(sums + i,
                  fma(gradient, weighted<T, kF32>(input * inverse, broadcast(1.0f)), load(sums + i, FullVector{})),
                  FullVector{});
        });
        const float mean = reduce_add(dots[0] + dots[1]) * inverse * inverse / static_cast<float>(width);
        if (y) {
          T* again = y[row];
          for_vectors(width, [&](std::int64_t i, auto count) {
            store(again + i, weighted<T, kF32>(load(value + i, count) * inverse, load(weight + i, count) + offset),
                  count);
          });
        }
        T* out = dx[row];
        const T* past = dsum ? dsum[row] : nullptr;
        for_vectors(width, [&](std::int64_t i, auto count) {
          const F32 u = load(g + i, count) * (load(weight + i, count) + offset);
          F32 result = (u - load(value + i, count) * mean) * inverse;
          if (past != nullptr) result += load(past + i, count);
          store(out + i, result, count);
        });
      }
    }
  });
  if (!wanted) return;

  dispatch<float, bfloat16>(args.dweight.dtype(), "rms_norm_backward", [&]<class W>() {
    W* dweight = args.dweight.data<W>();
    const float* sums = partial.data<float>();
    for_vectors(width, [&](std::int64_t i, auto count) {
      F32 total{};
      for (std::int64_t part = 0; part < parts.count; ++part) total += load(sums + part * padded + i, FullVector{});
      if (args.accumulate_dweight) total += load(dweight + i, count);
      store(dweight + i, total, count);
    });
  });
}

void rms_norm_backward_kernel(const RmsNormBackwardArgs& args) {
  dispatch<float, bfloat16>(args.x.dtype(), "rms_norm_backward", [&]<class T>() {
    args.f32_weight ? backward_rows<T, true>(args) : backward_rows<T, false>(args);
  });
  fill_quant_outputs(args.quant_outputs, args.dx);
}

QUENCH_CPU_KERNEL(rms_norm_slot, rms_norm_kernel);
QUENCH_CPU_KERNEL(rms_norm_backward_slot, rms_norm_backward_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
