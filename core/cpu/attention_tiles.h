#pragma once
// What the forward and the backward attention kernels share: tile sizes, the mask, and packing of operands into f32
// tiles for the micro kernels.

#include <algorithm>

#include "core/cpu/micro_gemm.h"
#include "core/cpu/transpose.h"
#include "core/ops/attention.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

inline constexpr std::int64_t kQueryTile = 8 * kMicroRows;
inline constexpr std::int64_t kKeyTile = 64;

QUENCH_INLINE std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// How many keys of a sequence its query number `query` sees.
QUENCH_INLINE std::int64_t visible_keys(const SequenceRange& s, bool causal, std::int64_t query) {
  return causal ? std::clamp<std::int64_t>(query + 1 + s.k_length - s.q_length, 0, s.k_length) : s.k_length;
}

// One head of a [N,heads,D] tensor.
template <class T>
struct HeadView {
  T* base;
  std::int64_t stride;
  HeadView(const Tensor& t, std::int64_t head)
      : base(t.data<std::remove_const_t<T>>() + head * t.stride(1)), stride(t.stride(0)) {}
  T* row(std::int64_t i) const { return base + i * stride; }
};

// Rows [first, first + count) as f32 with `padded` columns; columns beyond dim are 0.
template <class T>
void pack_rows(const HeadView<T>& from, std::int64_t first, std::int64_t count, std::int64_t dim, float* to,
               std::int64_t padded) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T* row = from.row(first + i);
    float* target = to + i * padded;
    for_vectors(dim, [&](std::int64_t d, auto lanes) { store(target + d, load(row + d, lanes), FullVector{}); });
  }
}

// Rows [first, first + count) transposed into tiles of kKeyTile columns: element (row, d) at
// to[row / kKeyTile][d][row % kKeyTile]. Columns of the last tile beyond count are 0 up to a whole vector.
template <class T>
void pack_transposed(const HeadView<T>& from, std::int64_t first, std::int64_t count, std::int64_t dim, float* to) {
  for (std::int64_t begin = 0; begin < count; begin += kLanes) {
    float* tile = to + begin / kKeyTile * kKeyTile * dim + begin % kKeyTile;
    const std::int64_t rows = std::min<std::int64_t>(kLanes, count - begin);
    const T* source = from.row(first + begin);
    for_vectors(dim, [&](std::int64_t d, auto lanes) {
      F32 block[kLanes];
      if (rows == kLanes) {
        for (int i = 0; i < kLanes; ++i) block[i] = load(source + i * from.stride + d, lanes);
      } else {
        for (int i = 0; i < kLanes; ++i) block[i] = i < rows ? load(source + i * from.stride + d, lanes) : F32{};
      }
      transpose_lanes(block);
      if constexpr (std::is_same_v<decltype(lanes), FullVector>) {
        for (int j = 0; j < kLanes; ++j) store(tile + (d + j) * kKeyTile, block[j], FullVector{});
      } else {
        for (int j = 0; j < lanes; ++j) store(tile + (d + j) * kKeyTile, block[j], FullVector{});
      }
    });
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

// Hands out f32 arrays from one block of memory, each aligned to a cache line if the block is.
class Arena {
 public:
  explicit Arena(float* base) : next_(base) {}
  float* take(std::int64_t n) {
    float* result = next_;
    next_ += round_up(n, 16);
    return result;
  }

 private:
  float* next_;
};

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
