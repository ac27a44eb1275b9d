#pragma once
// Dot products of 4-bit and float8 blocks with bf16 activations by BFMLALB and BFMLALT, whose sums are those of f32
// FMAs on widened operands; BFDOT and BFMMLA round otherwise. Interface: packed_ways.h.

#include "core/cpu/packed_ways.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)

// Values as bf16, low and high bytes apart: TBL looks up bytes.
struct Bf16Tables {
  std::array<std::uint8_t, 16> low{}, high{};

  explicit constexpr Bf16Tables(const std::array<float, 16>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const std::uint32_t bits = std::bit_cast<std::uint32_t>(values[i]);
      low[i] = static_cast<std::uint8_t>(bits >> 16);
      high[i] = static_cast<std::uint8_t>(bits >> 24);
    }
  }
};

struct Bf16Way {
  using X = bfloat16;
  using Part = F32;
  static constexpr int kWidth = 2 * kLanes, kBlockBytes = 4 * kLanes;
  static QUENCH_INLINE F32 sum(const Part (&part)[2]) { return part[0] + part[1]; }

 protected:
  // 16 values by their bytes: those at even positions are vector kEven of x, the others kOdd.
  template <int kRows, int kEven, int kOdd>
  static QUENCH_INLINE void multiply(uint8x16_t low, uint8x16_t high, const X* x, std::int64_t stride,
                                     Part (&part)[kRows][2]) {
    multiply<kRows>(vtrn1q_u8(low, high), x + kEven * kWidth, stride, part);
    multiply<kRows>(vtrn2q_u8(low, high), x + kOdd * kWidth, stride, part);
  }

 private:
  template <int kRows>
  static QUENCH_INLINE void multiply(uint8x16_t values, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const auto w = std::bit_cast<bfloat16x8_t>(values);
    unrolled<kRows>([&](auto row) QUENCH_INLINE_LAMBDA {
      bfloat16x8_t operand;
      std::memcpy(&operand, x + row * stride, sizeof operand);
      part[row][0] = vbfmlalbq_f32(part[row][0], w, operand);
      part[row][1] = vbfmlaltq_f32(part[row][1], w, operand);
    });
  }
};

template <const std::array<float, 16>& kValues>
struct Bf16Nibbles : Bf16Way {
  static constexpr Bf16Tables kTables{kValues};
  static constexpr int kPerLane = 8, kVectors = 4, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 4 * position + vector; }

  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const uint8x16_t low = vld1q_u8(kTables.low.data()), high = vld1q_u8(kTables.high.data());
    const uint8x16_t bytes = vld1q_u8(codes);
    const uint8x16_t first = vandq_u8(bytes, vdupq_n_u8(15)), second = vshrq_n_u8(bytes, 4);
    multiply<kRows, 0, 2>(vqtbl1q_u8(low, first), vqtbl1q_u8(high, first), x, stride, part);
    multiply<kRows, 1, 3>(vqtbl1q_u8(low, second), vqtbl1q_u8(high, second), x, stride, part);
  }
};

// The bias 7 becomes 127. Magnitudes below 16, among them the subnormals (below 8), from a table.
struct Bf16Float8 : Bf16Way {
  static constexpr Bf16Tables kSmall{{0, 0x1p-9f, 0x2p-9f, 0x3p-9f, 0x4p-9f, 0x5p-9f, 0x6p-9f, 0x7p-9f, 0x8p-9f,
                                      0x9p-9f, 0xAp-9f, 0xBp-9f, 0xCp-9f, 0xDp-9f, 0xEp-9f, 0xFp-9f}};
  static constexpr int kPerLane = 4, kVectors = 2, kBlock = kPerLane * kLanes;
  static constexpr int element(int vector, int position) { return 2 * position + vector; }

  template <int kRows>
  static QUENCH_INLINE void add(const std::uint8_t* codes, const X* x, std::int64_t stride, Part (&part)[kRows][2]) {
    const uint8x16_t bytes = vld1q_u8(codes), magnitude = vandq_u8(bytes, vdupq_n_u8(0x7F));
    const uint8x16_t exponent = vaddq_u8(vshrq_n_u8(magnitude, 4), vdupq_n_u8(120 / 2));
    const uint8x16_t low = vqtbx1q_u8(vshlq_n_u8(bytes, 4), vld1q_u8(kSmall.low.data()), magnitude);
    const uint8x16_t high = vqtbx1q_u8(exponent, vld1q_u8(kSmall.high.data()), magnitude);
    multiply<kRows, 0, 1>(low, vbslq_u8(vdupq_n_u8(0x80), bytes, high), x, stride, part);
  }
};

#endif

}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
