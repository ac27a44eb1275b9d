#include "core/gguf_types/legacy_blocks.h"

#include <cstring>

#include "core/gguf_types/block_layouts.h"

namespace quench {
namespace {

// Four bytes of fifth bits before the nibbles.
void get_five_bits(const std::uint8_t* in, std::int8_t* codes) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, in, sizeof bits);
  get_halves(in + 4, kSmallBlock, codes);
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<std::int8_t>(codes[i] | (bits >> i & 1) << 4);
}

void shift_codes(std::int8_t* codes, int by) {
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<std::int8_t>(codes[i] + by);
}

}  // namespace

void unpack_q8_0(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block);
  std::memcpy(out.codes, block + 2, kSmallBlock);
}

void unpack_q4_0(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block);
  get_halves(block + 2, kSmallBlock, out.codes);
  shift_codes(out.codes, -8);
}

void unpack_q4_1(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block);
  out.offsets[0] = load_half(block + 2);
  get_halves(block + 4, kSmallBlock, out.codes);
}

void unpack_q5_0(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block);
  get_five_bits(block + 2, out.codes);
  shift_codes(out.codes, -16);
}

void unpack_q5_1(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block);
  out.offsets[0] = load_half(block + 2);
  get_five_bits(block + 4, out.codes);
}

void quantize_q8_0(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q8_0Fit, Q8_0Layout>(x, importance, block);
}

void quantize_q4_0(const float* x, const float* importance, std::uint8_t* block) {
  if (importance != nullptr) return fit_block<Q4_0Fit, HalfBytesLayout>(x, importance, block);
  fit_block<PlainQ4_0Fit, HalfBytesLayout>(x, nullptr, block);
}

void quantize_q4_1(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q4_1Fit, Q4_1Layout>(x, importance, block);
}

void quantize_q5_0(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q5_0Fit, Q5_0Layout>(x, importance, block);
}

void quantize_q5_1(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Q5_1Fit, Q5_1Layout>(x, importance, block);
}

}  // namespace quench
