#pragma once
// Rows of packed matrices on the CPU, unpacked to values.

#include <algorithm>

#include "core/cpu/packed_codes.h"
#include "core/tensor/packed_matrix.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

struct PackedRows {
  std::int64_t rows, depth, group, groups;
  std::int64_t row_bytes;
  const std::uint8_t* codes;
  const float* offsets;  // optional
};

inline PackedRows rows_of(const PackedMatrix& m) {
  return {m.rows(),
          m.columns(),
          m.group_size(),
          m.groups(),
          m.columns() * bit_width(m.codes().dtype()) / 8,
          static_cast<const std::uint8_t*>(m.codes().raw_data()),
          m.offsets().defined() ? m.offsets().data<float>() : nullptr};
}

inline void widen_scales(const Tensor& scales, std::int64_t groups, std::int64_t first, std::int64_t count, float* to) {
  dispatch<float, bfloat16, float16>(scales.dtype(), "scales", [&]<class S>() {
    for_vectors(count * groups,
                [&](std::int64_t i, auto n) { store(to + i, load(scales.data<S>() + first * groups + i, n), n); });
  });
}

// scale * q + offset, each step rounded to f32, then to T. Without offsets no addition: -0 is kept.
template <class Codes, class T>
void unpack_row(const PackedRows& p, std::int64_t row, const float* scales, T* out) {
  const std::uint8_t* codes = p.codes + row * p.row_bytes;
  const float* offsets = p.offsets != nullptr ? p.offsets + row * p.groups : nullptr;
  const bool whole_vectors = p.groups == 1 || p.group % kLanes == 0;
  for (std::int64_t k = 0; k < p.depth; k += Codes::kBlock) {
    F32 w[2];
    const std::int64_t left = p.row_bytes - k / Codes::kPerByte;
    if (left >= Codes::kBlockBytes) [[likely]] {
      Codes::decode(codes + k / Codes::kPerByte, w);
    } else {
      std::uint8_t tail[Codes::kBlockBytes] = {};
      std::memcpy(tail, codes + k / Codes::kPerByte, static_cast<std::size_t>(left));
      Codes::decode(tail, w);
    }
    Codes::in_order(w);
    for (int v = 0; v < Codes::kVectors; ++v) {
      const std::int64_t at = k + v * kLanes, count = std::min<std::int64_t>(kLanes, p.depth - at);
      if (count <= 0) break;
      F32 scale, offset{};
      if (whole_vectors) {
        scale = broadcast(scales[at / p.group]);
        if (offsets != nullptr) offset = broadcast(offsets[at / p.group]);
      } else {
        for (int lane = 0; lane < kLanes; ++lane) {
          const std::int64_t group = std::min(at + lane, p.depth - 1) / p.group;
          scale[lane] = scales[group];
          if (offsets != nullptr) offset[lane] = offsets[group];
        }
      }
      F32 value = w[v] * scale;
      if (offsets != nullptr) value += offset;
      if (count == kLanes)
        store(out + at, value, FullVector{});
      else
        store(out + at, value, count);
    }
  }
}

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
