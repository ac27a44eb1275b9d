#include "core/gguf_types/iq2_blocks.h"

#include <algorithm>
#include <cstring>

#include "core/gguf_types/codebook_search.h"

namespace quench {
namespace {

constexpr int kIq2Cells = 32;
constexpr float kIq2Step = 0.125f;

float iq2_scale(float unit, int scale) {
  return unit * (0.5f + static_cast<float>(scale)) * 0.25f;
}

int scale_nibble(const std::uint8_t* bytes, int i) {
  return bytes[i / 2] >> (i % 2 * 4) & 0xF;
}

void put_scales(const CodebookBlock& found, std::uint8_t* out) {
  for (int g = 0; g < 16; g += 2) out[g / 2] = static_cast<std::uint8_t>(found.scales[g] | found.scales[g + 1] << 4);
}

}  // namespace

void unpack_iq2_xxs(const std::uint8_t* block, UnpackedBlock& out) {
  const Codebook& book = iq2_xxs_codebook();
  const float unit = load_half(block);
  for (int g = 0; g < 8; ++g) {
    const std::uint8_t* points = block + 2 + g * 8;
    std::uint32_t rest = 0;
    std::memcpy(&rest, points + 4, sizeof rest);
    out.scales[g] = iq2_scale(unit, static_cast<int>(rest >> 28));
    for (int i = 0; i < 4; ++i)
      put_point(book, points[i], even_signs(static_cast<int>(rest >> (7 * i) & 127)), out.codes + g * 32 + i * 8);
  }
}

void unpack_iq2_xs(const std::uint8_t* block, UnpackedBlock& out) {
  const Codebook& book = iq2_xs_codebook();
  const float unit = load_half(block);
  for (int g = 0; g < 16; ++g) out.scales[g] = iq2_scale(unit, scale_nibble(block + 66, g));
  for (int cell = 0; cell < kIq2Cells; ++cell) {
    const int both = block[2 + 2 * cell] | block[3 + 2 * cell] << 8;
    put_point(book, both & 511, even_signs(both >> 9), out.codes + cell * 8);
  }
}

void unpack_iq2_s(const std::uint8_t* block, UnpackedBlock& out) {
  const Codebook& book = iq2_s_codebook();
  const float unit = load_half(block);
  for (int g = 0; g < 16; ++g) out.scales[g] = iq2_scale(unit, scale_nibble(block + 74, g));
  for (int cell = 0; cell < kIq2Cells; ++cell) {
    const int high = block[66 + cell / 4] >> (cell % 4 * 2) & 3;
    put_point(book, block[2 + cell] | high << 8, block[34 + cell], out.codes + cell * 8);
  }
}

void quantize_iq2_xxs(const float* x, const float* importance, std::uint8_t* block) {
  const CodebookBlock found = CodebookSearch({&iq2_xxs_codebook(), true, 32, kIq2Step}, x, importance).find();
  store_half(block, found.unit);
  for (int g = 0; g < 8; ++g) {
    std::uint32_t rest = static_cast<std::uint32_t>(found.scales[g]) << 28;
    for (int i = 0; i < 4; ++i) {
      block[2 + g * 8 + i] = static_cast<std::uint8_t>(found.points[g * 4 + i]);
      rest |= static_cast<std::uint32_t>(found.signs[g * 4 + i] & 127) << (7 * i);
    }
    std::memcpy(block + 2 + g * 8 + 4, &rest, sizeof rest);
  }
}

void quantize_iq2_xs(const float* x, const float* importance, std::uint8_t* block) {
  const CodebookBlock found = CodebookSearch({&iq2_xs_codebook(), true, 16, kIq2Step}, x, importance).find();
  store_half(block, found.unit);
  for (int cell = 0; cell < kIq2Cells; ++cell) {
    const int both = found.points[cell] | (found.signs[cell] & 127) << 9;
    block[2 + 2 * cell] = static_cast<std::uint8_t>(both);
    block[3 + 2 * cell] = static_cast<std::uint8_t>(both >> 8);
  }
  put_scales(found, block + 66);
}

void quantize_iq2_s(const float* x, const float* importance, std::uint8_t* block) {
  const CodebookBlock found = CodebookSearch({&iq2_s_codebook(), false, 16, kIq2Step}, x, importance).find();
  store_half(block, found.unit);
  std::fill(block + 66, block + 74, std::uint8_t{0});
  for (int cell = 0; cell < kIq2Cells; ++cell) {
    block[2 + cell] = static_cast<std::uint8_t>(found.points[cell]);
    block[34 + cell] = found.signs[cell];
    block[66 + cell / 4] =
        static_cast<std::uint8_t>(block[66 + cell / 4] | (found.points[cell] >> 8) << (cell % 4 * 2));
  }
  put_scales(found, block + 74);
}

}  // namespace quench
