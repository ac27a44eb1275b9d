#include "core/gguf_types/affine_super_blocks.h"

#include "core/gguf_types/block_layouts.h"

namespace quench {
namespace {

// Eight 6-bit scales and minima in 12 bytes.
void get_scales_and_minima(const std::uint8_t* in, int* scales, int* minima) {
  for (int j = 0; j < 4; ++j) {
    scales[j] = in[j] & 63;
    minima[j] = in[j + 4] & 63;
    scales[j + 4] = (in[j + 8] & 0xF) | (in[j] >> 6) << 4;
    minima[j + 4] = in[j + 8] >> 4 | (in[j + 4] >> 6) << 4;
  }
}

void get_head(const std::uint8_t* block, UnpackedBlock& out) {
  int scales[8], minima[8];
  get_scales_and_minima(block + 4, scales, minima);
  const float unit = load_half(block), minimum_unit = load_half(block + 2);
  for (int g = 0; g < 8; ++g) {
    out.scales[g] = unit * static_cast<float>(scales[g]);
    out.offsets[g] = -(minimum_unit * static_cast<float>(minima[g]));
  }
}

}  // namespace

void unpack_q2_k(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block + 80), minimum_unit = load_half(block + 82);
  for (int g = 0; g < 16; ++g) {
    out.scales[g] = unit * static_cast<float>(block[g] & 0xF);
    out.offsets[g] = -(minimum_unit * static_cast<float>(block[g] >> 4));
  }
  get_quarters(block + 16, out.codes);
}

void unpack_q4_k(const std::uint8_t* block, UnpackedBlock& out) {
  get_head(block, out);
  for (int pair = 0; pair < 4; ++pair) get_halves(block + 16 + pair * 32, kNibblePair, out.codes + pair * kNibblePair);
}

void unpack_q5_k(const std::uint8_t* block, UnpackedBlock& out) {
  get_head(block, out);
  for (int pair = 0; pair < 4; ++pair) get_halves(block + 48 + pair * 32, kNibblePair, out.codes + pair * kNibblePair);
  for (int i = 0; i < kSuperBlock; ++i)
    out.codes[i] = static_cast<std::int8_t>(out.codes[i] | plane_bit(block + 16, i) << 4);
}

void quantize_q2_k(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q2_KFit, Q2_KLayout>(x, importance, block);
}

void quantize_q4_k(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q4_KFit, Q4_KLayout>(x, importance, block);
}

void quantize_q5_k(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q5_KFit, Q5_KLayout>(x, importance, block);
}

}  // namespace quench
