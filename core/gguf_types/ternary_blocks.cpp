#include "core/gguf_types/ternary_blocks.h"

#include "core/gguf_types/block_fits.h"

namespace quench {
namespace {

// Bytes of TQ1_0: `count` bytes hold `digits` runs of as many elements each, the first run as the highest digit.
struct DigitRun {
  int byte, element, count, digits;
};
constexpr DigitRun kRuns[] = {{0, 0, 32, 5}, {32, 160, 16, 5}, {48, 240, 4, 4}};
constexpr int kDigits = 243;  // 3^5

// Codes 0, 1, 2 of x ~ scale * (code - 1); returns the scale as stored.
float fit_ternary(const float* x, const float* importance, std::uint8_t* codes) {
  constexpr int kGroups = TernaryFit::kGroups;
  const GroupedBlock<kSuperBlock, 1> block(x, importance);
  float sizes[kSuperBlock];
  for (int i = 0; i < kSuperBlock; ++i) sizes[i] = magnitude(x[i]);
  const float scale = TernaryFit::find(
      SerialTeam<kGroups>(), [&](int i, int own) { return sizes[i * kGroups + own]; },
      [&](int i, int own) { return block.weights[0][i * kGroups + own]; });
  for (int i = 0; i < kSuperBlock; ++i)
    codes[i] = static_cast<std::uint8_t>(static_cast<int>(TernaryFit::digit(x[i], scale)) + 1);
  return scale;
}

}  // namespace

void unpack_tq1_0(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block + 52);
  for (const auto& [byte, element, count, digits] : kRuns)
    for (int i = 0; i < count; ++i) {
      // A fraction of 256, whose digits come out on multiplication by 3.
      std::uint8_t rest = block[byte + i];
      for (int digit = 0; digit < digits; ++digit) {
        const int product = rest * 3;
        out.codes[element + digit * count + i] = static_cast<std::int8_t>((product >> 8) - 1);
        rest = static_cast<std::uint8_t>(product);
      }
    }
}

void unpack_tq2_0(const std::uint8_t* block, UnpackedBlock& out) {
  out.scales[0] = load_half(block + 64);
  get_quarters(block, out.codes);
  for (std::int8_t& code : out.codes) code = static_cast<std::int8_t>(code - 1);
}

void quantize_tq1_0(const float* x, const float* importance, std::uint8_t* block) {
  std::uint8_t codes[kSuperBlock];
  store_half(block + 52, fit_ternary(x, importance, codes));
  for (const auto& [byte, element, count, digits] : kRuns)
    for (int i = 0; i < count; ++i) {
      int number = 0;
      for (int digit = 0; digit < 5; ++digit)
        number = number * 3 + (digit < digits ? codes[element + digit * count + i] : 0);
      block[byte + i] = static_cast<std::uint8_t>((number * 256 + kDigits - 1) / kDigits);  // rounded up
    }
}

void quantize_tq2_0(const float* x, const float* importance, std::uint8_t* block) {
  std::uint8_t codes[kSuperBlock];
  store_half(block + 64, fit_ternary(x, importance, codes));
  put_quarters(codes, block);
}

}  // namespace quench
