#include "core/gguf_types/nonlinear_blocks.h"

#include "core/gguf_types/block_layouts.h"

namespace quench {
namespace {

void get_values(const std::uint8_t* in, std::int8_t* values) {
  get_halves(in, kSmallBlock, values);
  for (int i = 0; i < kSmallBlock; ++i) values[i] = static_cast<std::int8_t>(NonlinearGrid::value(values[i]));
}

constexpr int kXsGroups = kSuperBlock / kSmallBlock;

}  // namespace

void unpack_iq4_nl(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block);
  get_values(block + 2, out.codes);
}

void unpack_iq4_xs(const std::uint8_t* block, UnpackedBlock& out) {
  const float unit = load_half(block);
  const int high = block[2] | block[3] << 8;
  for (int g = 0; g < kXsGroups; ++g) {
    const int scale = (block[4 + g / 2] >> (g % 2 * 4) & 0xF) | (high >> (2 * g) & 3) << 4;
    out.scales[g] = unit * static_cast<float>(scale - 32);
    get_values(block + 8 + g * 16, out.codes + g * kSmallBlock);
  }
}

void quantize_iq4_nl(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Iq4NlFit, HalfBytesLayout>(x, importance, block);
}

void quantize_iq4_xs(const float* x, const float* importance, std::uint8_t* block) {
  fit_block<Iq4XsFit, Iq4XsLayout>(x, importance, block);
}

}  // namespace quench
