#include "core/gguf_types/float4_blocks.h"

#include <algorithm>
#include <cmath>

#include "core/number/e8m0.h"

namespace quench {

void unpack_mxfp4(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = decode_e8m0(block[0]);
  get_halves(block + 1, kSmallBlock, out.codes);
}

void unpack_nvfp4(const std::uint8_t* block, UnpackedBlock& out) {
  for (int g = 0; g < 4; ++g) {
    const int exponent = block[g] >> 3 & 0xF, mantissa = block[g] & 7;
    const float scale = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                      : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    out.scales[g] = block[g] == 0x7F ? 0.0f : scale;
    get_halves(block + 4 + g * 8, 16, out.codes + g * 16);
  }
}

void quantize_mxfp4(const float* x, const float*, std::uint8_t* block) {
  float amax = 0;
  for (int i = 0; i < kSmallBlock; ++i) amax = std::max(amax, std::abs(x[i]));
  const int exponent = amax > 0 ? std::ilogb(amax) - 2 + 127 : 0;
  block[0] = static_cast<std::uint8_t>(std::clamp(exponent, 0, 254));
  const float scale = decode_e8m0(block[0]);
  std::uint8_t codes[kSmallBlock];
  for (int i = 0; i < kSmallBlock; ++i) {
    // Ties: the smaller value, as in ggml.
    const float magnitude = std::abs(x[i]);
    int best = 0;
    for (int code = 1; code < 8; ++code)
      if (std::abs(E2m1::decode(static_cast<std::uint8_t>(code)) * scale - magnitude) <
          std::abs(E2m1::decode(static_cast<std::uint8_t>(best)) * scale - magnitude))
        best = code;
    codes[i] = static_cast<std::uint8_t>(best | (x[i] < 0 && best != 0 ? 8 : 0));
  }
  put_halves(codes, kSmallBlock, block + 1);
}

}  // namespace quench
