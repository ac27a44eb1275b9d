#pragma once
// Codes of a weight row as operands of the packed GEMMs: K tiles of kTileBytes, parts of kPartK values, bf16 pairs.

#include "core/cuda/common/pack.cuh"
#include "core/cuda/common/packed_codes.cuh"

namespace quench::cuda::packed_gemm_tiles {

inline constexpr int kTileBytes = 64;  // codes of a weight row in a K tile
inline constexpr int kPartK = 32;      // a part: two MMAs along K
template <class Codes>
inline constexpr int kTileK = kTileBytes * 8 / Codes::kBits;
template <class Codes>
inline constexpr int kParts = kTileK<Codes> / kPartK;

// Nibble i and i + 1 of a word, for even i, in the halves of out[i / 2]; bytes 1 and 3: `fill`'s.
__device__ __forceinline__ void nibble_pairs(std::uint32_t word, std::uint32_t fill, std::uint32_t (&out)[4]) {
  const std::uint32_t even = word & 0x0F0F0F0Fu, odd = word >> 4 & 0x0F0F0F0Fu;
  const std::uint32_t low = __byte_perm(even, odd, 0x5140), high = __byte_perm(even, odd, 0x7362);
  out[0] = __byte_perm(low, fill, 0x4140);
  out[1] = __byte_perm(low, fill, 0x4342);
  out[2] = __byte_perm(high, fill, 0x4140);
  out[3] = __byte_perm(high, fill, 0x4342);
}

// Eight values as bf16 pairs, in order.
template <class Codes>
__device__ __forceinline__ void decode_eight(const std::uint32_t* words, std::uint32_t (&out)[4]) {
  if constexpr (std::is_same_v<Codes, Int4>) {
    std::uint32_t pairs[4];
    nibble_pairs(words[0] ^ 0x88888888u, 0x43434343u, pairs);  // 128 to 143
    fused(Packed<bfloat16>{pairs[0], pairs[1], pairs[2], pairs[3]}, 0x3F803F80u, 0xC308C308u, out);
  } else if constexpr (std::is_same_v<Codes, Float4>) {
    std::uint32_t pairs[4];
    nibble_pairs(words[0], 0, pairs);
    Packed<bfloat16> small;  // 2^126 times too small, as Float4::decode_pairs()
#pragma unroll
    for (int i = 0; i < 4; ++i) small.words[i] = (pairs[i] << 12 & 0x80008000u) | (pairs[i] << 6 & 0x01C001C0u);
    fused(small, 0x7E807E80u, 0x80008000u, out);
  } else {
    std::uint32_t halves[4];
    Codes::decode_pairs(words[0], *reinterpret_cast<std::uint32_t(*)[2]>(&halves[0]));
    Codes::decode_pairs(words[1], *reinterpret_cast<std::uint32_t(*)[2]>(&halves[2]));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = unpack_pair<float16>(halves[i]);
      out[i] = pack_pair<bfloat16>(pair.x, pair.y);
    }
  }
}

}  // namespace quench::cuda::packed_gemm_tiles
