#include "export/gguf_types/nonlinear_blocks.h"

#include <algorithm>
#include <array>
#include <utility>

#include "export/gguf_types/super_scales.h"

namespace quench {
namespace {

constexpr std::array<std::int8_t, 16> kNonlinear = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                    1,    13,   25,  38,  53,  69,  89,  113};

// The code nearest to each integer from -128.
constexpr std::array<std::uint8_t, 256> kNonlinearCodes = [] {
  std::array<std::uint8_t, 256> codes{};
  for (int x = -128; x < 128; ++x) {
    int best = 0;
    const auto distance = [x](int code) {
      const int d = kNonlinear[static_cast<std::size_t>(code)] - x;
      return d < 0 ? -d : d;
    };
    for (int code = 1; code < 16; ++code)
      if (distance(code) < distance(best)) best = code;
    codes[static_cast<std::size_t>(x + 128)] = static_cast<std::uint8_t>(best);
  }
  return codes;
}();

struct NonlinearGrid {
  static constexpr float kLow = kNonlinear.front(), kHigh = kNonlinear.back();
  // Sum of the steps that are passed, without branches.
  [[nodiscard]] static float nearest(float ratio) noexcept {
    return nearest(ratio, std::make_index_sequence<kNonlinear.size() - 1>());
  }

 private:
  template <std::size_t... I>
  [[nodiscard]] static float nearest(float ratio, std::index_sequence<I...>) noexcept {
    return kLow + (... + (ratio > (kNonlinear[I] + kNonlinear[I + 1]) / 2.0f
                              ? static_cast<float>(kNonlinear[I + 1] - kNonlinear[I])
                              : 0.0f));
  }
};

std::uint8_t code_of(float value) {
  return kNonlinearCodes[static_cast<std::size_t>(static_cast<int>(value) + 128)];
}

void get_values(const std::uint8_t* in, std::int8_t* values) {
  get_halves(in, kSmallBlock, values);
  for (int i = 0; i < kSmallBlock; ++i) values[i] = kNonlinear[static_cast<std::size_t>(values[i])];
}

void put_values(const float* values, std::uint8_t* out) {
  std::uint8_t codes[kSmallBlock];
  std::transform(values, values + kSmallBlock, codes, code_of);
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
  float weights[kSmallBlock], values[kSmallBlock];
  error_weights<kSmallBlock>(importance, weights);
  const float scale = stored_unit(find_scale<NonlinearGrid, kSmallBlock>(x, weights, 7, 0.2f));
  (void)scale_error<NonlinearGrid, kSmallBlock>(x, weights, scale, values);
  store_half(block, scale);
  put_values(values, block + 2);
}

void quantize_iq4_xs(const float* x, const float* importance, std::uint8_t* block) {
  const ScaledBlock found = SuperScales<NonlinearGrid, kSmallBlock, -32, 31>(x, importance, 7, 0.2f).find(1);
  store_half(block, found.unit);
  std::fill(block + 2, block + 8, std::uint8_t{0});
  for (int g = 0; g < kXsGroups; ++g) {
    const int code = found.scales[g] + 32;
    block[2 + g / 4] = static_cast<std::uint8_t>(block[2 + g / 4] | (code >> 4) << (g % 4 * 2));
    block[4 + g / 2] = static_cast<std::uint8_t>(block[4 + g / 2] | (code & 0xF) << (g % 2 * 4));
    put_values(found.values + g * kSmallBlock, block + 8 + g * 16);
  }
}

}  // namespace quench
