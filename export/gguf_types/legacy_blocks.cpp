#include "export/gguf_types/legacy_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/number/bounded_code.h"
#include "export/gguf_types/line_search.h"
#include "export/gguf_types/scale_search.h"

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
template <int Half>
float fit_symmetric(const float* x, const float* importance, int steps, float reach, int* codes) {
  using Grid = IntegerGrid<-Half, Half - 1>;
  float weights[kSmallBlock], values[kSmallBlock];
  error_weights<kSmallBlock>(importance, weights);
  const float scale = stored_unit(find_scale<Grid, kSmallBlock>(x, weights, steps, reach));
  (void)scale_error<Grid, kSmallBlock>(x, weights, scale, values);
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<int>(values[i]) + Half;
  return scale;
}

// Codes 0 to Most under a line whose scale and offset are halves.
template <int Most>
Line fit_affine(const float* x, const float* importance, int* codes) {
  float weights[kSmallBlock], values[kSmallBlock];
  error_weights<kSmallBlock>(importance, weights);
  const Line line = LineSearch<kSmallBlock>(x, weights, Most, false).find(kLineStarts);
  Line stored{stored_unit(line.scale), static_cast<float>(float16(line.offset))};
  const double least = line_error<kSmallBlock>(x, weights, stored, Most, values);
  // The offset that suits the stored scale and its codes.
  float w = 0, rest = 0;
  for (int i = 0; i < kSmallBlock; ++i) {
    w += weights[i];
    rest += weights[i] * (x[i] - stored.scale * values[i]);
  }
  const Line moved{stored.scale, static_cast<float>(float16(rest / w))};
  if (line_error<kSmallBlock>(x, weights, moved, Most) < least) stored = moved;
  (void)line_error<kSmallBlock>(x, weights, stored, Most, values);
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<int>(values[i]);
  return stored;
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

void quantize_q4_0(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  if (importance != nullptr) {
    store_half(block, fit_symmetric<8>(x, importance, 9, 0.2f, codes));
    return put_halves(codes, kSmallBlock, block + 2);
  }
  float largest = 0;
  for (int i = 0; i < kSmallBlock; ++i)
    if (std::abs(x[i]) > std::abs(largest)) largest = x[i];
  const float scale = largest / -8.0f, inverse = scale != 0.0f ? 1.0f / scale : 0.0f;
  store_half(block, scale);
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = bounded_code(x[i] * inverse + 8.5f, 0, 15);
  put_halves(codes, kSmallBlock, block + 2);
}

void quantize_q4_1(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  const Line line = fit_affine<15>(x, importance, codes);
  store_half(block, line.scale);
  store_half(block + 2, line.offset);
  put_halves(codes, kSmallBlock, block + 4);
}

void quantize_q5_0(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  store_half(block, fit_symmetric<16>(x, importance, 8, 0.1f, codes));
  put_five_bits(codes, block + 2);
}

void quantize_q5_1(const float* x, const float* importance, std::uint8_t* block) {
  int codes[kSmallBlock];
  const Line line = fit_affine<31>(x, importance, codes);
  store_half(block, line.scale);
  store_half(block + 2, line.offset);
  put_five_bits(codes, block + 4);
}

}  // namespace quench
