#include "core/gguf_types/ternary_blocks.h"

#include "core/gguf_types/block_layouts.h"

namespace quench {
namespace {

// Bytes of TQ1_0: `count` bytes hold `digits` runs of as many elements each, the first run as the highest digit.
struct DigitRun {
  int byte, element, count, digits;
};
constexpr DigitRun kRuns[] = {{0, 0, 32, 5}, {32, 160, 16, 5}, {48, 240, 4, 4}};

// As TernaryFit::find(), with neighbouring groups next to each other in memory.
template <class Layout>
void fit_ternary(const float* x, const float* importance, std::uint8_t* block) {
  constexpr int kGroups = TernaryFit::kGroups;
  const GroupedBlock<kSuperBlock, 1> grouped(x, importance);
  float sizes[kSuperBlock];
  for (int i = 0; i < kSuperBlock; ++i) sizes[i] = magnitude(x[i]);
  BlockNumbers<TernaryFit::kSize, kGroups> numbers;
  numbers.unit = TernaryFit::find_scale(
      SerialTeam<kGroups>(), [&](int i, int own) { return sizes[i * kGroups + own]; },
      [&](int i, int own) { return grouped.weights[0][i * kGroups + own]; });
  for (int i = 0; i < kSuperBlock; ++i) numbers.codes[i] = TernaryFit::code(x[i], numbers.unit);
  Layout::pack(numbers, block);
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
  fit_ternary<Tq1_0Layout>(x, importance, block);
}

void quantize_tq2_0(const float* x, const float* importance, std::uint8_t* block) {
  fit_ternary<Tq2_0Layout>(x, importance, block);
}

}  // namespace quench
