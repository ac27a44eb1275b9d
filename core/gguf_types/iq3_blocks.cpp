#include "core/gguf_types/iq3_blocks.h"

#include <algorithm>
#include <cstring>

#include "core/gguf_types/codebook_search.h"

namespace quench {
namespace {

constexpr int kIq3Cells = 64, kIq3Groups = 8;

}  // namespace

void unpack_iq3_xxs(const std::uint8_t* block, UnpackedBlock& out) {
  const Codebook& book = iq3_xxs_codebook();
  const float unit = load_half(block);
  for (int g = 0; g < kIq3Groups; ++g) {
    std::uint32_t rest = 0;
    std::memcpy(&rest, block + 66 + g * 4, sizeof rest);
    out.scales[g] = unit * (0.5f + static_cast<float>(rest >> 28)) * 0.5f;
    for (int i = 0; i < 8; ++i) {
      const int signs = even_signs(static_cast<int>(rest >> (i / 2 * 7) & 127)) >> (i % 2 * 4);
      put_point(book, block[2 + g * 8 + i], signs, out.codes + g * 32 + i * 4);
    }
  }
}

void unpack_iq3_s(const std::uint8_t* block, UnpackedBlock& out) {
  const Codebook& book = iq3_s_codebook();
  const float unit = load_half(block);
  for (int g = 0; g < kIq3Groups; ++g)
    out.scales[g] = unit * static_cast<float>(1 + 2 * (block[106 + g / 2] >> (g % 2 * 4) & 0xF));
  for (int cell = 0; cell < kIq3Cells; ++cell) {
    const int high = block[66 + cell / 8] >> (cell % 8) & 1;
    put_point(book, block[2 + cell] | high << 8, block[74 + cell / 2] >> (cell % 2 * 4), out.codes + cell * 4);
  }
}

void quantize_iq3_xxs(const float* x, const float* importance, std::uint8_t* block) {
  const CodebookBlock found = CodebookSearch({&iq3_xxs_codebook(), true, 32, 0.25f}, x, importance).find();
  store_half(block, found.unit);
  for (int cell = 0; cell < kIq3Cells; ++cell) block[2 + cell] = static_cast<std::uint8_t>(found.points[cell]);
  for (int g = 0; g < kIq3Groups; ++g) {
    std::uint32_t rest = static_cast<std::uint32_t>(found.scales[g]) << 28;
    for (int i = 0; i < 4; ++i) rest |= static_cast<std::uint32_t>(found.signs[g * 4 + i] & 127) << (7 * i);
    std::memcpy(block + 66 + g * 4, &rest, sizeof rest);
  }
}

void quantize_iq3_s(const float* x, const float* importance, std::uint8_t* block) {
  const CodebookBlock found = CodebookSearch({&iq3_s_codebook(), false, 32, 1.0f}, x, importance).find();
  store_half(block, found.unit);
  std::fill(block + 66, block + 74, std::uint8_t{0});
  for (int cell = 0; cell < kIq3Cells; ++cell) {
    block[2 + cell] = static_cast<std::uint8_t>(found.points[cell]);
    block[66 + cell / 8] = static_cast<std::uint8_t>(block[66 + cell / 8] | (found.points[cell] >> 8) << (cell % 8));
  }
  std::copy(found.signs, found.signs + 32, block + 74);
  for (int g = 0; g < kIq3Groups; g += 2)
    block[106 + g / 2] = static_cast<std::uint8_t>(found.scales[g] | found.scales[g + 1] << 4);
}

}  // namespace quench
