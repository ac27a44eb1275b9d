#include "export/schemes/kept_scales.h"

#include <algorithm>
#include <array>
#include <bit>

#include "core/number/dtype.h"
#include "core/number/e8m0.h"
#include "core/number/float4.h"
#include "core/ops/quantize/quantize.h"
#include "core/system/check.h"

namespace quench {
namespace {

using BlockCodes = std::array<std::uint8_t, kMxBlockSize / 2>;

// Codes of exactly these values; false: there are none.
template <class T>
bool exact_codes(const T* values, float scale, BlockCodes& codes) {
  std::array<std::uint8_t, 2> pair{};
  for (std::size_t i = 0; i < kMxBlockSize; ++i) {
    const float value = static_cast<float>(values[i]);
    const std::uint8_t code = E2m1::encode(value / scale);
    if (std::bit_cast<std::uint32_t>(E2m1::decode(code) * scale) != std::bit_cast<std::uint32_t>(value)) return false;
    pair[i % 2] = code;
    if (i % 2 == 1) codes[i / 2] = pack_nibbles(pair[0], pair[1]);
  }
  return true;
}

}  // namespace

void keep_block_scales(const Tensor& weight, const Tensor& stored, const QuantizedWeight& quantized) {
  if (!stored.defined() || quantized.scheme.element != ElementFormat::e2m1 || quantized.scheme.scale != ScaleForm::e8m0)
    return;
  QUENCH_CHECK(stored.numel() * kMxBlockSize == weight.numel() && quantized.scales.numel() == stored.numel(),
               "scales {} of a weight {}", stored.describe(), weight.describe());
  const auto* exponents = stored.data<std::uint8_t>();
  auto* scales = static_cast<std::uint8_t*>(quantized.scales.raw_data());
  auto* codes = static_cast<std::uint8_t*>(quantized.codes.raw_data());
  dispatch<float, bfloat16>(weight.dtype(), "keep_block_scales", [&]<class T>() {
    const T* values = weight.data<T>();
#pragma omp parallel for schedule(static)
    for (std::int64_t block = 0; block < stored.numel(); ++block) {
      const std::uint8_t exponent = exponents[block];
      BlockCodes kept{};
      if (exponent == kE8m0Nan || exponent == scales[block] ||
          !exact_codes(values + block * kMxBlockSize, decode_e8m0(exponent), kept))
        continue;
      scales[block] = exponent;
      std::ranges::copy(kept, codes + block * static_cast<std::int64_t>(kept.size()));
    }
  });
}

}  // namespace quench
