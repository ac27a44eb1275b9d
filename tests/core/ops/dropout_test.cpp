#include "core/ops/dropout.h"

#include "tests/core/ops/quantize/quantize_inputs.h"

namespace quench {
namespace {

TEST(Dropout, KeepsWhatItsDrawsKeepAndScalesIt) {
  const RandomKey key{.seed = 3, .stream = 5, .step = 7};
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Tensor x =
        dtype == DType::f32 ? testing::random_tensor<float>({37, 101}) : testing::random_tensor<bfloat16>({37, 101});
    const Tensor out = Tensor::empty_like(x);
    dropout({.x = x, .out = out, .probability = 0.25f, .key = key});
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      const bool stays = to_uniform(random_word(key, static_cast<std::uint64_t>(i))) >= 0.25f;
      kept += stays ? 1 : 0;
      if (dtype == DType::f32) {
        EXPECT_EQ(out.data<float>()[i], stays ? x.data<float>()[i] * (1.0f / 0.75f) : 0.0f);
      } else {
        const float expected = stays ? float(bfloat16(float(x.data<bfloat16>()[i]) * (1.0f / 0.75f))) : 0.0f;
        EXPECT_EQ(float(out.data<bfloat16>()[i]), expected);
      }
    }
    EXPECT_NEAR(static_cast<double>(kept) / static_cast<double>(x.numel()), 0.75, 0.02);
    dropout({.x = x, .out = x, .probability = 0.25f, .key = key});
    EXPECT_EQ(0, std::memcmp(x.raw_data(), out.raw_data(), x.nbytes())) << "in place";
  }
  EXPECT_THROW(dropout({.x = Tensor::empty({2}, DType::f32),
                        .out = Tensor::empty({2}, DType::f32),
                        .probability = 1.0f,
                        .key = key}),
               Error);
}

}  // namespace
}  // namespace quench
