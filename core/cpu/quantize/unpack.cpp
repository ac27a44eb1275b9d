
#include <algorithm>
#include <type_traits>
#include <vector>

#include "core/cpu/packed_rows.h"
#include "core/cpu/parallel.h"
#include "core/ops/packed_linear.h"

namespace quench::cpu::QUENCH_CPU_NAMESPACE {
namespace {

// Fast unpack_row(), bit-identical; false if not applicable.
template <class Codes, class T>
bool look_up_row([[maybe_unused]] const PackedRows& p, [[maybe_unused]] std::int64_t row,
                 [[maybe_unused]] const float* scales, [[maybe_unused]] T* out) {
#if defined(__AVX512BW__)
  // 16 distinct values of a 4-bit group, computed and rounded once.
  if constexpr (std::is_same_v<T, bfloat16> && Codes::kPerByte == 2) {
    constexpr std::int64_t kCodes = 32, kBytes = kCodes / 2;
    if (p.groups > 1 && p.group % kCodes != 0) return false;
    const F32 values = Codes::ValueOf::of(std::bit_cast<U32>(lane_numbers()));
    const std::uint8_t* codes = p.codes + row * p.row_bytes;
    for (std::int64_t g = 0, k = 0; k < p.depth; ++g) {
      F32 scaled = values * scales[g];
      if (p.offsets != nullptr) scaled += p.offsets[row * p.groups + g];
      // Five index bits: both table halves are equal.
      const __m512i table = _mm512_broadcast_i64x4(std::bit_cast<__m256i>(narrow_to_u16(round_to_bfloat16(scaled))));
      for (const std::int64_t end = p.groups == 1 ? p.depth : std::min(k + p.group, p.depth); k < end; k += kCodes) {
        const __mmask16 bytes = tail_mask(std::min(kBytes, p.row_bytes - k / 2));
        const __m512i pairs = _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(bytes, codes + k / 2));
        const __m512i words = _mm512_or_si512(pairs, _mm512_slli_epi32(pairs, 12));
        const __m512i row_values = _mm512_permutexvar_epi16(words, table);
        if (end - k >= kCodes)
          _mm512_storeu_si512(out + k, row_values);
        else
          _mm512_mask_storeu_epi16(out + k, (__mmask32{1} << (end - k)) - 1, row_values);
      }
    }
    return true;
  }
#elif defined(__aarch64__)
  if constexpr (std::is_same_v<T, bfloat16> && Codes::kPerByte == 2) {
    constexpr std::int64_t kCodes = 32;
    if (p.groups > 1 && p.group % kCodes != 0) return false;
    const std::uint8_t* codes = p.codes + row * p.row_bytes;
    for (std::int64_t g = 0, k = 0; k < p.depth; ++g) {
      bfloat16 values[16];
      for (std::uint32_t first = 0; first < 16; first += kLanes) {
        F32 scaled = Codes::ValueOf::of(std::bit_cast<U32>(lane_numbers()) + first) * scales[g];
        if (p.offsets != nullptr) scaled += p.offsets[row * p.groups + g];
        store(values + first, scaled, FullVector{});
      }
      const uint8x16x2_t tables = vld2q_u8(reinterpret_cast<const std::uint8_t*>(values));  // low bytes, high bytes
      for (const std::int64_t end = p.groups == 1 ? p.depth : std::min(k + p.group, p.depth); k < end; k += kCodes) {
        if (end - k < kCodes) {
          for (std::int64_t i = k; i < end; ++i) out[i] = values[codes[i / 2] >> (i % 2 * 4) & 15];
          continue;
        }
        const uint8x16_t pairs = vld1q_u8(codes + k / 2);
        const uint8x16_t even = vandq_u8(pairs, vdupq_n_u8(15)), odd = vshrq_n_u8(pairs, 4);
        vst4q_u8(reinterpret_cast<std::uint8_t*>(out + k),
                 {{vqtbl1q_u8(tables.val[0], even), vqtbl1q_u8(tables.val[1], even), vqtbl1q_u8(tables.val[0], odd),
                   vqtbl1q_u8(tables.val[1], odd)}});
      }
    }
    return true;
  }
#endif
  return false;
}

void unpack_kernel(const UnpackArgs& args) {
  const PackedMatrix& weight = args.weight;
  const PackedRows rows = rows_of(weight);
  dispatch_codes(weight.codes().dtype(), "unpack", [&]<class Codes>() {
    dispatch<float, bfloat16>(args.out.dtype(), "unpack", [&]<class T>() {
      parallel_ranges(rows.rows, rows.rows * rows.depth, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> scales(static_cast<std::size_t>(rows.groups));
        for (std::int64_t row = begin; row < end; ++row) {
          widen_scales(weight.scales(), rows.groups, row, 1, scales.data());
          T* out = args.out.data<T>() + row * rows.depth;
          if (!look_up_row<Codes>(rows, row, scales.data(), out)) unpack_row<Codes>(rows, row, scales.data(), out);
        }
      });
    });
  });
}

QUENCH_CPU_KERNEL(unpack_slot, unpack_kernel);

}  // namespace
}  // namespace quench::cpu::QUENCH_CPU_NAMESPACE
