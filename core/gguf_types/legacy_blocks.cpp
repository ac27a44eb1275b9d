#include "core/gguf_types/legacy_blocks.h"

#include <cstring>

#include "core/gguf_types/block_fits.h"

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

void put_five_bits(const int* codes, std::uint8_t* out) {
  std::uint32_t bits = 0;
  for (int i = 0; i < kSmallBlock; ++i) bits |= static_cast<std::uint32_t>(codes[i] >> 4) << i;
  std::memcpy(out, &bits, sizeof bits);
  put_halves(codes, kSmallBlock, out + 4);
}

// Codes from 0 of the grid from -Half to Half - 1; returns the scale as stored.
template <class Fit, int Half>
float fit_symmetric(const float* x, const float* importance, int* codes) {
  const GroupedBlock<kSmallBlock, 1> block(x, importance);
  const float scale = Fit::find(SerialTeam<1>(), block.x, block.weights), inverse = inverse_scale(scale);
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<int>(Fit::Values::nearest(x[i] * inverse)) + Half;
  return scale;
}

// Codes from 0 under a line whose scale and offset are halves.
template <class Fit>
Line fit_affine(const float* x, const float* importance, int* codes) {
  const GroupedBlock<kSmallBlock, 1> block(x, importance);
  const Line line = Fit::find(SerialTeam<1>(), block.x, block.weights);
  const float inverse = line.inverse();
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<int>(line.code(x[i], inverse, Fit::kMostCode));
  return line;
}

// Elements of a block for the fits that need no weights.
const float (&elements(const float* x))[kSmallBlock] {
  return *reinterpret_cast<const float(*)[kSmallBlock]>(x);
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

void quantize_q8_0(const float* x, const float*, std::uint8_t* block) {
  const float scale = Q8_0Fit::find_scale(elements(x)), inverse = inverse_scale(scale);
  store_half(block, scale);
  for (int i = 0; i < kSmallBlock; ++i)
    block[2 + i] = static_cast<std::uint8_t>(static_cast<int>(Q8_0Fit::code(x[i] * inverse)));
}

void quantize_q4_0(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  if (importance != nullptr) {
    store_half(block, fit_symmetric<Q4_0Fit, 8>(x, importance, codes));
    return put_halves(codes, kSmallBlock, block + 2);
  }
  const float scale = PlainQ4_0Fit::find_scale(elements(x)), inverse = inverse_scale(scale);
  store_half(block, scale);
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = PlainQ4_0Fit::code(x[i] * inverse);
  put_halves(codes, kSmallBlock, block + 2);
}

void quantize_q4_1(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  const Line line = fit_affine<Q4_1Fit>(x, importance, codes);
  store_half(block, line.scale);
  store_half(block + 2, line.offset);
  put_halves(codes, kSmallBlock, block + 4);
}

void quantize_q5_0(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  store_half(block, fit_symmetric<Q5_0Fit, 16>(x, importance, codes));
  put_five_bits(codes, block + 2);
}

void quantize_q5_1(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  const Line line = fit_affine<Q5_1Fit>(x, importance, codes);
  store_half(block, line.scale);
  store_half(block + 2, line.offset);
  put_five_bits(codes, block + 4);
}

}  // namespace quench
