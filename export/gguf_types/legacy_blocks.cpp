#include "export/gguf_types/legacy_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/number/bounded_code.h"

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

void quantize_q8_0(const float* x, const float*, std::uint8_t* block) {
  float amax = 0;
  for (int i = 0; i < kSmallBlock; ++i) amax = std::max(amax, std::abs(x[i]));
  const float scale = amax / 127.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  store_half(block, scale);
  for (int i = 0; i < kSmallBlock; ++i)
    block[2 + i] = static_cast<std::uint8_t>(bounded_code(std::round(x[i] * inverse), -128, 127));
}

void quantize_q4_0(const float* x, const float*, std::uint8_t* block) {
  float largest = 0;
  for (int i = 0; i < kSmallBlock; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  const float scale = largest / -8.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  store_half(block, scale);
  int codes[kSmallBlock];
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = bounded_code(x[i] * inverse + 8.5f, 0, 15);
  put_halves(codes, kSmallBlock, block + 2);
}

}  // namespace quench
