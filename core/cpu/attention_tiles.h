#pragma once
// Tile sizes, mask, and packing into micro-kernel operands (micro_gemm.h).

#include <algorithm>

#include "core/cpu/micro_gemm.h"
#include "core/cpu/transpose.h"
#include "core/ops/attention.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

inline constexpr std::int64_t kQueryTile = 8 * kMicroRows;
inline constexpr std::int64_t kKeyTile = 64;
static_assert(kQueryTile % 2 == 0 && kMicroRows % 2 == 0 && kKeyTile % (2 * kLanes) == 0);

QUENCH_INLINE constexpr std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

QUENCH_INLINE std::int64_t visible_keys(const SequenceRange& s, bool causal, std::int64_t query) {
  return causal ? std::clamp<std::int64_t>(query + 1 + s.k_length - s.q_length, 0, s.k_length) : s.k_length;
}

template <class T>
struct HeadView {
  T* base;
  std::int64_t stride;
  HeadView(const Tensor& t, std::int64_t head)
      : base(t.data<std::remove_const_t<T>>() + head * t.stride(1)), stride(t.stride(0)) {}
  T* row(std::int64_t i) const { return base + i * stride; }
};

// Packed head of `dim` columns.
template <class Operand>
struct HeadLayout {
  std::int64_t dim;
  std::int64_t padded;  // columns in whole vectors: width of sums, and of operands with K along the rows
  std::int64_t depth;   // operands per row with K along the columns
  explicit HeadLayout(std::int64_t head_dim)
      : dim(head_dim), padded(round_up(head_dim, kLanes)), depth(round_up(head_dim, kPack<Operand>) / kPack<Operand>) {}
  // Serves both layouts.
  [[nodiscard]] std::int64_t row() const { return kPack<Operand> == 1 ? padded : depth; }
};

// K along the columns.
template <class T>
void pack_rows(const HeadView<T>& from, std::int64_t first, std::int64_t count, const HeadLayout<float>& layout,
               float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = from.row(first + i);
    float* target = to + i * layout.row();
    for_vectors(layout.dim, [&](std::int64_t d, auto lanes) { store(target + d, load(row + d, lanes), FullVector{}); });
  }
}
template <class T>
void pack_rows(const HeadView<T>& from, std::int64_t first, std::int64_t count, const HeadLayout<Bf16Pair>& layout,
               Bf16Pair* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    Bf16Pair* target = to + i * layout.row();
    target[layout.depth - 1] = {};  // second half of an odd dimension
    std::memcpy(target, from.row(first + i), static_cast<std::size_t>(layout.dim) * 2);
  }
}

// K along the rows: B operands for `padded` columns of C.
template <class T>
void pack_depth_rows(const HeadView<T>& from, std::int64_t first, std::int64_t count, const HeadLayout<float>& layout,
                     float* to) {
  pack_rows(from, first, count, layout, to);
}
template <class T>
void pack_depth_rows(const HeadView<T>& from, std::int64_t first, std::int64_t count,
                     const HeadLayout<Bf16Pair>& layout, Bf16Pair* to) {
  for (std::int64_t i = 0; i < count; i += 2) {
    const T* low = from.row(first + i);
    const T* high = i + 1 < count ? from.row(first + i + 1) : nullptr;
    Bf16Pair* target = to + i / 2 * layout.padded;
    for_vectors(layout.dim, [&](std::int64_t d, auto lanes) {
      U32 pair = widen_u16(load_u16(low + d, lanes));
      if (high != nullptr) pair |= widen_u16(load_u16(high + d, lanes)) << 16;
      std::memcpy(target + d, &pair, sizeof pair);
    });
  }
}

// Zero-filled past dim.
template <class T>
QUENCH_INLINE F32 load_row(const T* row, std::int64_t d, std::int64_t dim, const float*) {
  return d + kLanes <= dim ? load(row + d, FullVector{}) : load(row + d, dim - d);
}
template <class T>
QUENCH_INLINE F32 load_row(const T* row, std::int64_t d, std::int64_t dim, const Bf16Pair*) {
  F32 result{};
  const std::int64_t elements = std::min<std::int64_t>(2 * kLanes, dim - 2 * d);
  if (elements == 2 * kLanes)
    std::memcpy(&result, row + 2 * d, sizeof result);
  else
    std::memcpy(&result, row + 2 * d, static_cast<std::size_t>(elements) * 2);
  return result;
}

// Operand (row, d) at to[row / kKeyTile][d][row % kKeyTile]; the last tile is zero-filled to a whole vector.
template <class T, class Operand>
void pack_transposed(const HeadView<T>& from, std::int64_t first, std::int64_t count, const HeadLayout<Operand>& layout,
                     Operand* to) {
  for (std::int64_t begin = 0; begin < count; begin += kLanes) {
    Operand* tile = to + begin / kKeyTile * kKeyTile * layout.depth + begin % kKeyTile;
    const std::int64_t rows = std::min<std::int64_t>(kLanes, count - begin);
    const T* source = from.row(first + begin);
    for (std::int64_t d = 0; d < layout.depth; d += kLanes) {
      F32 block[kLanes];
      if (rows == kLanes) {
        for (int i = 0; i < kLanes; ++i) block[i] = load_row(source + i * from.stride, d, layout.dim, to);
      } else {
        for (int i = 0; i < kLanes; ++i)
          block[i] = i < rows ? load_row(source + i * from.stride, d, layout.dim, to) : F32{};
      }
      transpose_lanes(block);
      if (d + kLanes <= layout.depth) {
        for (int j = 0; j < kLanes; ++j) std::memcpy(tile + (d + j) * kKeyTile, &block[j], sizeof block[j]);
      } else {
        for (std::int64_t j = 0; d + j < layout.depth; ++j)
          std::memcpy(tile + (d + j) * kKeyTile, &block[j], sizeof block[j]);
      }
    }
  }
}

template <class T>
void unpack_rows(const float* from, std::int64_t padded, float factor, const HeadView<T>& to, std::int64_t first,
                 std::int64_t count, std::int64_t dim) {
  for (std::int64_t i = 0; i < count; ++i) {
    T* row = to.row(first + i);
    for_vectors(dim, [&](std::int64_t d, auto lanes) {
      store(row + d, load(from + i * padded + d, FullVector{}) * factor, lanes);
    });
  }
}

template <class T>
void zero_rows(const Tensor& t) {
  for (std::int64_t i = 0; i < t.size(0); ++i)
    for (std::int64_t head = 0; head < t.size(1); ++head) {
      T* row = HeadView<T>(t, head).row(i);
      std::fill(row, row + t.size(2), T(0.0f));
    }
}

// 32-bit arrays, cache-line aligned if the base is.
class Arena {
 public:
  explicit Arena(float* base) : next_(base) {}
  template <class E>
  E* take(std::int64_t n) {
    static_assert(sizeof(E) == sizeof(float));
    float* result = next_;
    next_ += round_up(n, 16);
    return reinterpret_cast<E*>(result);
  }

 private:
  float* next_;
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
