#pragma once
// RMSNorm building blocks. kGroup threads share a row: thread `lane` has the kVectors 16-byte vectors lane + k *
// kGroup. kGroup and kVectors fix the summation order.

#include <cuda_pipeline.h>

#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/rows.cuh"
#include "core/cuda/quantize/quant_outputs.cuh"
#include "core/ops/norm.h"

namespace quench::cuda {

template <class T>
struct NormRows {
  Rows<const T> x;
  const T* weight;
  Rows<T> y;
  float* rstd;
  std::uint32_t rows;
  RowNumbering numbering;
  std::int64_t width;
  int vectors;  // per row
  QuantOutputPointers quant_outputs;
  float weight_offset;
  bool f32_weight;

  template <class Args>
  explicit NormRows(const Args& args)
      : x(args.x),
        weight(args.weight.template data<T>()),
        y(args.y),
        rstd(args.rstd.template data<float>()),
        rows(static_cast<std::uint32_t>(args.rstd.numel())),
        numbering(args.x),
        width(args.x.size(-1)),
        vectors(static_cast<int>(width / kVectorWidth<T>)),
        quant_outputs(args.quant_outputs),
        weight_offset(args.weight_offset),
        f32_weight(args.f32_weight) {}
  // Every row allows 16-byte accesses.
  [[nodiscard]] bool wide() const { return x.wide(width) && y.wide(width) && rows_are_wide<T>(weight, 0, width); }
};

template <class T>
struct ForwardRows : NormRows<T> {
  Rows<const T> residual;
  Rows<T> sum;
  float eps;

  explicit ForwardRows(const RmsNormArgs& args)
      : NormRows<T>(args), residual(args.residual), sum(args.sum), eps(args.eps) {}
  [[nodiscard]] bool wide() const { return NormRows<T>::wide() && residual.wide(this->width) && sum.wide(this->width); }
};

// Threads per CTA for kGroup threads per row.
template <int kGroup>
inline constexpr int kNormBlock = kGroup > 32 ? kGroup : 256;

// Streaming for rows, cached for the weight.
template <int kGroup, class T, int kVectors>
__device__ inline void load_row(Packed<T> (&pieces)[kVectors], const T* row, int lane, int end) {
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (lane + k * kGroup < end) pieces[k] = load_packed_once(row, lane + k * kGroup);
}
template <int kGroup, class T, int kVectors>
__device__ inline void load_weight(Packed<T> (&pieces)[kVectors], const T* weight, int lane, int end) {
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (lane + k * kGroup < end) pieces[k] = load_packed(weight, lane + k * kGroup);
}
template <int kGroup, int kVectors, class T>
__device__ inline void fetch_row(Packed<T>* slots, const T* row, int lane, int end) {
  const auto* from = reinterpret_cast<const Packed<T>*>(row) + lane;
#pragma unroll
  for (int k = 0; k < kVectors; ++k)
    if (lane + k * kGroup < end) __pipeline_memcpy_async(slots + k * kGroup, from + k * kGroup, sizeof(Packed<T>));
}

// f32 versions of pack.cuh's bf16 functions.
__device__ inline Packed<float> sum(const Packed<float>& a, const Packed<float>& b) {
  Vector<float> result = unpack(a);
  const Vector<float> addend = unpack(b);
#pragma unroll
  for (int j = 0; j < kVectorWidth<float>; ++j) result[j] += addend[j];
  return pack<float>(result);
}
__device__ inline Packed<float> product(const Packed<float>& a, const Packed<float>& b) {
  Vector<float> result = unpack(a);
  const Vector<float> factor = unpack(b);
#pragma unroll
  for (int j = 0; j < kVectorWidth<float>; ++j) result[j] *= factor[j];
  return pack<float>(result);
}

template <class T>
__device__ inline float sum_of_squares(const Packed<T>& piece) {
  const auto x = unpack(piece);
  float part[2] = {};
#pragma unroll
  for (int j = 0; j < kVectorWidth<T>; ++j) part[j % 2] = fmaf(x[j], x[j], part[j % 2]);
  return part[0] + part[1];
}

__device__ inline float reciprocal_root_mean(float squares, float width, float eps) {
  return 1.0f / sqrtf(squares / width + eps);
}

// x rstd (weight + offset), one rounding.
template <class T>
__device__ inline Packed<T> normalised_f32(const Packed<T>& x, float rstd, const Packed<T>& weight, float offset) {
  auto result = unpack(x);
  const auto factor = unpack(weight);
#pragma unroll
  for (int j = 0; j < kVectorWidth<T>; ++j) result[j] = result[j] * rstd * (factor[j] + offset);
  return pack<T>(result);
}

// round(x rstd) * weight.
template <class T>
__device__ inline Packed<T> normalised(const Packed<T>& x, float rstd, const Packed<T>& weight) {
  auto result = unpack(x);
#pragma unroll
  for (int j = 0; j < kVectorWidth<T>; ++j) result[j] *= rstd;
  return product(pack<T>(result), weight);
}
template <class T>
__device__ inline T normalised(T x, float rstd, T weight) {
  return from_float<T>(rounded<T>(to_float(x) * rstd) * to_float(weight));
}

// As the form of the operation says; the branch is uniform.
template <class T>
__device__ inline Packed<T> normalised(const Packed<T>& x, float rstd, const Packed<T>& weight,
                                       const NormRows<T>& form) {
  return form.f32_weight ? normalised_f32(x, rstd, weight, form.weight_offset) : normalised(x, rstd, weight);
}
template <class T>
__device__ inline T normalised(T x, float rstd, T weight, const NormRows<T>& form) {
  return form.f32_weight ? from_float<T>(to_float(x) * rstd * (to_float(weight) + form.weight_offset))
                         : normalised(x, rstd, weight);
}

}  // namespace quench::cuda
