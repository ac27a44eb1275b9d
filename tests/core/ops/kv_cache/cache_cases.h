#pragma once
// Quantized KV caches for the tests of their ops, and their values by the scalar formulas.

#include <array>

#include "core/number/cache_code.h"
#include "core/ops/kv_cache/cache_codes.h"
#include "core/ops/kv_cache/coded_attention.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

inline constexpr std::array kCacheCodes = {DType::f8_e4m3, DType::i8};

// Keys and values of `heads` (2 kv_heads) vectors a row. `shared`: scales of calibration.
struct CodedCache {
  Tensor cache, scales;

  CodedCache(std::int64_t capacity, std::int64_t heads, std::int64_t dim, DType codes, bool shared)
      : cache(Tensor::empty({capacity, heads * dim}, codes)),
        scales(shared ? Tensor::empty({heads}, DType::f32) : Tensor::zeros({capacity, heads}, DType::f32)) {
    std::memset(cache.raw_data(), 0, cache.nbytes());
  }
  // Codes of all rows; scales of calibration fit to them.
  CodedCache(const Tensor& values, std::int64_t heads, DType codes, bool shared)
      : CodedCache(values.size(0), heads, values.size(1) / heads, codes, shared) {
    if (shared) calibrate(values);
    const Tensor positions = Tensor::empty({values.size(0)}, DType::i32);
    for (std::int64_t i = 0; i < values.size(0); ++i) positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
    append_codes({.values = values, .positions = positions, .cache = cache, .scales = scales});
  }

  [[nodiscard]] std::int64_t heads() const { return scales.size(-1); }
  [[nodiscard]] std::int64_t dim() const { return cache.size(1) / heads(); }
  [[nodiscard]] float largest_code() const { return cache.dtype() == DType::i8 ? Int8Code::kMax : E4m3::kMax; }
  void calibrate(const Tensor& values) const {
    for (std::int64_t h = 0; h < heads(); ++h) {
      double most = 0;
      for (std::int64_t i = 0; i < values.size(0); ++i)
        for (std::int64_t d = 0; d < dim(); ++d)
          most = std::max(most, std::abs(get_element(values, offset_of(values, i * values.size(1) + h * dim() + d))));
      scales.data<float>()[h] = static_cast<float>(most) / largest_code();
    }
  }
  [[nodiscard]] std::uint8_t code(std::int64_t row, std::int64_t head, std::int64_t d) const {
    return static_cast<const std::uint8_t*>(cache.raw_data())[(row * heads() + head) * dim() + d];
  }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t head) const {
    return scales.data<float>()[row * scale_stride(scales) + head];
  }
  [[nodiscard]] float value(std::int64_t row, std::int64_t head, std::int64_t d) const {
    return cache.dtype() == DType::i8 ? cached_value<Int8Code>(code(row, head, d), scale(row, head))
                                      : cached_value<E4m3>(code(row, head, d), scale(row, head));
  }
  // f32 [capacity, heads / 2, D]: keys, or values.
  [[nodiscard]] Tensor decoded(bool values) const {
    const std::int64_t kv_heads = heads() / 2, rows = cache.size(0);
    const Tensor out = Tensor::empty({rows, kv_heads, dim()}, DType::f32);
    for (std::int64_t i = 0; i < rows; ++i)
      for (std::int64_t h = 0; h < kv_heads; ++h)
        for (std::int64_t d = 0; d < dim(); ++d)
          out.data<float>()[(i * kv_heads + h) * dim() + d] = value(i, (values ? kv_heads : 0) + h, d);
    return out;
  }
};

struct CodedProblem {
  CodedCache cache;
  Tensor q;
  std::vector<SequenceRange> sequences;
  std::int64_t window = 0;
  float scale = 1, soft_cap = 0;
  Tensor sinks{};

  [[nodiscard]] CodedAttentionArgs args(const Tensor& out) const {
    return {.q = q,
            .cache = cache.cache,
            .scales = cache.scales,
            .out = out,
            .sequences = sequences,
            .window = window,
            .scale = scale,
            .soft_cap = soft_cap,
            .sinks = sinks};
  }
};

// `lengths`: queries and keys of each sequence; `gap` rows in no sequence in front.
inline CodedProblem make_coded(Generator& random, const std::vector<std::pair<std::int64_t, std::int64_t>>& lengths,
                               std::int64_t heads, std::int64_t kv_heads, std::int64_t dim, DType dtype, DType codes,
                               bool shared, std::int64_t gap = 0) {
  std::vector<SequenceRange> sequences;
  std::int64_t nq = gap, nk = gap;
  for (const auto& [queries, keys] : lengths) {
    sequences.push_back({nq, queries, nk, keys});
    nq += queries;
    nk += keys;
  }
  return {.cache = CodedCache(random.normal({nk, 2 * kv_heads * dim}, dtype), 2 * kv_heads, codes, shared),
          .q = random.normal({nq, heads, dim}, dtype),
          .sequences = std::move(sequences),
          .scale = 1.0f / std::sqrt(static_cast<float>(dim))};
}

}  // namespace quench::testing
