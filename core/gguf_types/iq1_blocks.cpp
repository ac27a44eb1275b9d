#include "core/gguf_types/iq1_blocks.h"

#include "core/gguf_types/codebooks.h"

namespace quench {
namespace {

constexpr int kIq1Cells = 32;

int word(const std::uint8_t* bytes, int i) {
  return bytes[2 * i] | bytes[2 * i + 1] << 8;
}

void put_shifted(int point, bool down, std::int8_t* codes) {
  const std::int8_t* values = iq1_codebook().point(point);
  for (int i = 0; i < 8; ++i) codes[i] = static_cast<std::int8_t>(8 * values[i] + (down ? -1 : 1));
}

float iq1_scale(float unit, int scale) {
  return unit * static_cast<float>(2 * scale + 1) * 0.125f;
}

}  // namespace

void unpack_iq1_s(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block);
  for (int cell = 0; cell < kIq1Cells; ++cell) {
    const int group = word(block + 34, cell / 4);
    out.scales[cell / 4] = iq1_scale(unit, group >> 12 & 7);
    put_shifted(block[2 + cell] | (group >> (cell % 4 * 3) & 7) << 8, (group & 0x8000) != 0, out.codes + cell * 8);
  }
}

void unpack_iq1_m(const std::uint8_t* block, UnpackedBlock& out) {
  // The unit is in the upper four bits of four words.
  const std::uint8_t* words = block + 48;
  int bits = 0;
  for (int i = 0; i < 4; ++i) bits |= (word(words, i) >> 12) << (4 * i);
  const float unit = static_cast<float>(float16::from_bits(static_cast<std::uint16_t>(bits)));
  for (int g = 0; g < 16; ++g) out.scales[g] = iq1_scale(unit, word(words, g / 4) >> (g % 4 * 3) & 7);
  for (int cell = 0; cell < kIq1Cells; ++cell) {
    const int high = block[32 + cell / 2] >> (cell % 2 * 4);
    put_shifted(block[cell] | (high & 7) << 8, (high & 8) != 0, out.codes + cell * 8);
  }
}

}  // namespace quench
