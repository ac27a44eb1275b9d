#pragma once
// Shared by the quantization kernels. Compiled per instruction set: hence the unnamed namespace.

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "core/cpu/parallel.h"
#include "core/ops/quantize/quantize.h"

namespace quench {
namespace {

using cpu::QUENCH_CPU_NAMESPACE::kParallelElements;

// Blocks or columns per iteration.
constexpr std::int64_t kBlocksAtOnce = 64, kStripColumns = 64;

// [.., R, C] as `batch` matrices; a vector: one row.
struct MatrixBatch {
  std::int64_t batch = 1, rows = 1, columns = 1;
  explicit MatrixBatch(const Shape& shape) {
    for (int i = 0; i + 2 < shape.rank(); ++i) batch *= shape[i];
    if (shape.rank() >= 2) rows = shape[-2];
    if (shape.rank() >= 1) columns = shape[-1];
  }
  [[nodiscard]] std::int64_t numel() const noexcept { return batch * rows * columns; }
};

// NaN above infinity.
inline std::uint16_t magnitude(bfloat16 x) noexcept {
  return x.bits & 0x7FFFu;
}
inline std::uint32_t magnitude(float x) noexcept {
  return bit_cast<std::uint32_t>(x) & kF32MagnitudeMask;
}
inline float magnitude_value(std::uint16_t word) noexcept {
  return bfloat16::from_bits(word);
}
inline float magnitude_value(std::uint32_t word) noexcept {
  return bit_cast<float>(word);
}

template <class T>
using Magnitude = decltype(magnitude(T{}));

template <class T>
inline Magnitude<T> max_magnitude(const T* x, std::int64_t count) noexcept {
  Magnitude<T> most = 0;
  for (std::int64_t i = 0; i < count; ++i) most = std::max(most, magnitude(x[i]));
  return most;
}

static_assert(std::endian::native == std::endian::little);

// One value per byte to two, and back; even counts. 16-bit pairs vectorize.
inline void pack_codes(const std::uint8_t* codes, std::int64_t count, std::uint8_t* packed) noexcept {
  for (std::int64_t i = 0; i < count / 2; ++i) {
    std::uint16_t pair = 0;
    std::memcpy(&pair, codes + 2 * i, 2);
    packed[i] = static_cast<std::uint8_t>(pair | pair >> 4);
  }
}

inline void unpack_codes(const std::uint8_t* packed, std::int64_t count, std::uint8_t* codes) noexcept {
  for (std::int64_t i = 0; i < count / 2; ++i) {
    const auto pair = static_cast<std::uint16_t>((packed[i] | packed[i] << 4) & 0x0F0F);
    std::memcpy(codes + 2 * i, &pair, 2);
  }
}

// By word swaps of 8x8 blocks (Warren, "Hacker's Delight", 7-3).
template <int rows, int columns>
inline void transpose_bytes(const std::uint8_t (&from)[rows][columns], std::uint8_t (&to)[columns][rows]) noexcept {
  static_assert(rows % 8 == 0 && columns % 8 == 0);
  constexpr int kSquares = columns / 8;
  for (int r = 0; r < rows; r += 8) {
    std::uint64_t words[8][kSquares];
    for (int i = 0; i < 8; ++i) std::memcpy(words[i], from[r + i], columns);
    for (int s = 0; s < kSquares; ++s) {
      const auto swap = [&](int low, int high, int shift, std::uint64_t mask) {
        const std::uint64_t difference = (words[low][s] >> shift ^ words[high][s]) & mask;
        words[high][s] ^= difference;
        words[low][s] ^= difference << shift;
      };
      for (int i = 0; i < 4; ++i) swap(i, i + 4, 32, 0x00000000FFFFFFFFull);
      for (int i : {0, 1, 4, 5}) swap(i, i + 2, 16, 0x0000FFFF0000FFFFull);
      for (int i = 0; i < 8; i += 2) swap(i, i + 1, 8, 0x00FF00FF00FF00FFull);
    }
    for (int s = 0; s < kSquares; ++s)
      for (int i = 0; i < 8; ++i) std::memcpy(to[8 * s + i] + r, &words[i][s], 8);
  }
}

template <class... Elements, class Body>
void dispatch_quantize(std::string_view op, DType dtype, ElementFormat element, const Body& body) {
  dispatch<float, bfloat16>(dtype, op, [&]<class T>() {
    dispatch_element<Elements...>(element, op, [&]<class Element>() { body.template operator()<T, Element>(); });
  });
}

}  // namespace
}  // namespace quench
