#include "core/gguf_types/nonlinear_blocks.h"

#include <algorithm>
#include <array>

#include "core/gguf_types/block_fits.h"

namespace quench {
namespace {

// The code nearest to each integer from -128.
constexpr std::array<std::uint8_t, 256> kNonlinearCodes = [] {
  std::array<std::uint8_t, 256> codes{};
  for (int x = -128; x < 128; ++x) {
    int best = 0;
    const auto distance = [x](int code) {
      const int d = NonlinearGrid::value(code) - x;
      return d < 0 ? -d : d;
    };
    for (int code = 1; code < NonlinearGrid::kCount; ++code)
      if (distance(code) < distance(best)) best = code;
    codes[static_cast<std::size_t>(x + 128)] = static_cast<std::uint8_t>(best);
  }
  return codes;
}();

std::uint8_t code_of(float value) {
  return kNonlinearCodes[static_cast<std::size_t>(static_cast<int>(value) + 128)];
}

void get_values(const std::uint8_t* in, std::int8_t* values) {
  get_halves(in, kSmallBlock, values);
  for (int i = 0; i < kSmallBlock; ++i) values[i] = static_cast<std::int8_t>(NonlinearGrid::value(values[i]));
}

void put_values(const float (&x)[kSmallBlock], float scale, std::uint8_t* out) {
  std::uint8_t codes[kSmallBlock];
  const float inverse = inverse_scale(scale);
  for (int i = 0; i < kSmallBlock; ++i) codes[i] = code_of(NonlinearGrid::nearest(x[i] * inverse));
  put_halves(codes, kSmallBlock, out);
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
  const GroupedBlock<kSmallBlock, 1, Iq4NlFit::PlainWeights> grouped(x, importance);
  const float scale = Iq4NlFit::find(SerialTeam<1>(), grouped.x, grouped.weights);
  store_half(block, scale);
  put_values(grouped.x[0], scale, block + 2);
}

void quantize_iq4_xs(const float* x, const float* importance, std::uint8_t* block) {
  const GroupedBlock<kSmallBlock, kXsGroups, Iq4XsFit::PlainWeights> grouped(x, importance);
  const auto found = Iq4XsFit::find(SerialTeam<kXsGroups>(), grouped.x, grouped.weights);
  store_half(block, found.unit);
  std::fill(block + 2, block + 8, std::uint8_t{0});
  for (int g = 0; g < kXsGroups; ++g) {
    const int code = found.scales[g] + 32;
    block[2 + g / 4] = static_cast<std::uint8_t>(block[2 + g / 4] | (code >> 4) << (g % 4 * 2));
    block[4 + g / 2] = static_cast<std::uint8_t>(block[4 + g / 2] | (code & 0xF) << (g % 2 * 4));
    put_values(grouped.x[g], found.unit * static_cast<float>(found.scales[g]), block + 8 + g * 16);
  }
}

}  // namespace quench
