#pragma once
// Packed weight (packed_matrix.h) and GEMM output in kernels.

#include <cuda_fp16.h>

#include "core/cuda/common/vector.cuh"
#include "core/tensor/packed_matrix.h"

namespace quench::cuda {

struct PackedView {
  const std::uint8_t* codes;
  const void* scales;
  const float* offsets;  // optional
  DType scale_dtype;
  std::int64_t rows, columns, row_bytes, group, groups;

  explicit PackedView(const PackedMatrix& m)
      : codes(static_cast<const std::uint8_t*>(m.codes().raw_data())),
        scales(m.scales().raw_data()),
        offsets(m.offsets().defined() ? m.offsets().data<float>() : nullptr),
        scale_dtype(m.scales().dtype()),
        rows(m.rows()),
        columns(m.columns()),
        row_bytes(m.columns() * bit_width(m.codes().dtype()) / 8),
        group(m.group_size()),
        groups(m.groups()) {}

  explicit PackedView(const Tensor& values)
      : codes(static_cast<const std::uint8_t*>(values.raw_data())),
        scales(nullptr),
        offsets(nullptr),
        scale_dtype(DType::f32),
        rows(values.size(0)),
        columns(values.size(1)),
        row_bytes(2 * columns),
        group(columns),
        groups(1) {}

  [[nodiscard]] __device__ const void* scale_address(std::int64_t i) const {
    return static_cast<const char*>(scales) + i * (scale_dtype == DType::f32 ? 4 : 2);
  }
  // Conversion is deferred past the load latency.
  [[nodiscard]] __device__ std::uint32_t scale_bits(int i) const {
    const void* const at = scale_address(i);
    if (scale_dtype == DType::f32) return *static_cast<const std::uint32_t*>(at);
    return *static_cast<const std::uint16_t*>(at);
  }
  [[nodiscard]] __device__ float scale_of(std::uint32_t bits) const {
    if (scale_dtype == DType::f32) return __uint_as_float(bits);
    if (scale_dtype == DType::bf16) return __uint_as_float(bits << 16);
    return __half2float(__ushort_as_half(static_cast<unsigned short>(bits)));
  }
  [[nodiscard]] __device__ float scale(std::int64_t i) const {
    if (scale_dtype == DType::f32) return static_cast<const float*>(scales)[i];
    if (scale_dtype == DType::bf16) return to_float(static_cast<const bfloat16*>(scales)[i]);
    return static_cast<float>(static_cast<const float16*>(scales)[i]);
  }
};

// Evict-first load with an L2 prefetch of the surrounding 256 bytes.
__device__ inline uint4 load_weights(const uint4* address) {
  uint4 v;
  asm volatile("ld.global.cs.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// Chunk to group: piece / divisor without a division, exact while piece * divisor < 2^31.
class GroupIndex {
 public:
  explicit GroupIndex(int divisor) : factor_((kOne + static_cast<std::uint32_t>(divisor) - 1) / divisor) {}
  [[nodiscard]] __device__ int operator()(int piece) const {
    return static_cast<int>((std::uint64_t{static_cast<std::uint32_t>(piece)} * factor_) >> 31);
  }

 private:
  static constexpr std::uint32_t kOne = 1u << 31;
  std::uint32_t factor_;
};

// f32, or the dtype of x.
struct PackedOutput {
  void* y;
  std::int64_t stride;
  bool f32;

  template <class T>
  __device__ void write(std::int64_t row, std::int64_t column, float value) const {
    const std::int64_t at = row * stride + column;
    if (f32)
      static_cast<float*>(y)[at] = value;
    else
      static_cast<T*>(y)[at] = from_float<T>(value);
  }
};

}  // namespace quench::cuda
