#pragma once
// Operands of block-scaled GEMMs for the tests of every device.

#include "core/ops/quantize/quantize.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {

enum class BlockScaledForm { mxfp8, nvfp4, nvfp4_one_level };
inline constexpr BlockScaledForm kBlockScaledForms[] = {BlockScaledForm::mxfp8, BlockScaledForm::nvfp4,
                                                        BlockScaledForm::nvfp4_one_level};

struct BlockScaledCase {
  std::int64_t m, n, k;
  BlockScaledForm form = BlockScaledForm::mxfp8;
  DType dtype = DType::bf16;
  float beta = 0.0f;

  // On the CPU; blocks of very different size.
  [[nodiscard]] QuantTensor operand(Generator& random, std::int64_t rows) const {
    const Tensor x = random.normal({rows, k}, DType::f32);
    for (std::int64_t i = 0; i < x.numel(); i += kNvfp4BlockSize) {
      const auto size = static_cast<float>(std::exp2(random.between(-3, 3)));
      for (std::int64_t j = i; j < i + kNvfp4BlockSize; ++j) x.data<float>()[j] *= size;
    }
    if (form == BlockScaledForm::mxfp8) return quantize_mx(x, {});
    if (form == BlockScaledForm::nvfp4_one_level) return quantize_nvfp4(x);
    return quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor)));
  }
  [[nodiscard]] std::string describe() const {
    constexpr std::string_view kNames[] = {"mxfp8", "nvfp4", "nvfp4 with one level"};
    return fmt::format("{} x {} x {}, {} -> {}, beta {}", m, n, k, kNames[static_cast<int>(form)],
                       quench::to_string(dtype), beta);
  }
};

}  // namespace quench::testing
