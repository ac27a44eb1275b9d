#pragma once
// Keys and values of a quantized KV cache as f32 vectors.

#include <array>
#include <limits>

#include "core/cpu/attention_tiles.h"
#include "core/cpu/packed_codes.h"
#include "core/number/cache_code.h"
#include "core/ops/kv_cache/cache_codes.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

// With NaN.
struct CachedFloat8 {
  static QUENCH_INLINE F32 of(U32 code) {
    return select(std::bit_cast<I32>((code & 0x7Fu) == 0x7Fu), broadcast(std::numeric_limits<float>::quiet_NaN()),
                  Float8Value::of(code));
  }
};

// Unscaled elements d to d + kLanes - 1 of a row of `dim` codes, zero-filled.
template <class Value>
QUENCH_INLINE F32 load_codes(const std::uint8_t* row, std::int64_t d, std::int64_t dim) {
  if (d + kLanes <= dim) return Value::of(load_bytes(row + d));
  std::array<std::uint8_t, kLanes> rest{};
  std::copy(row + d, row + dim, rest.begin());
  return Value::of(load_bytes(rest.data()));
}

// Keys or values of a KV head. Value: CachedFloat8 or SignedByte.
template <class Value>
class CodeRows {
 public:
  using Stored = std::uint8_t;
  // `vector`: of a row, of 2 kv_heads.
  CodeRows(const Tensor& cache, const Tensor& scales, std::int64_t vector)
      : codes_(static_cast<const std::uint8_t*>(cache.raw_data()) + vector * (cache.size(1) / scales.size(-1))),
        scales_(scales.data<float>() + vector),
        stride_(cache.size(1)),
        scale_stride_(scale_stride(scales)) {}
  const std::uint8_t* row(std::int64_t i) const { return codes_ + i * stride_; }
  [[nodiscard]] std::int64_t stride() const { return stride_; }
  static QUENCH_INLINE F32 load(const std::uint8_t* row, std::int64_t d, std::int64_t dim) {
    return load_codes<Value>(row, d, dim);
  }
  void apply_scales(float* x, std::int64_t first, std::int64_t count) const {
    for (std::int64_t i = 0; i < count; ++i) x[i] *= scales_[(first + i) * scale_stride_];
  }

 private:
  const std::uint8_t* codes_;
  const float* scales_;
  std::int64_t stride_, scale_stride_;
};

// body<Element, Value>() of the codes' dtype.
template <class Body>
void dispatch_cache_codes(DType dtype, const Body& body) {
  if (dtype == DType::f8_e4m3)
    body.template operator()<E4m3, CachedFloat8>();
  else
    body.template operator()<Int8Code, SignedByte>();
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
