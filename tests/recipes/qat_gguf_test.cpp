// Quantization-aware training for a GGUF file: layers compute with what a reader of the file computes.

#include <gmock/gmock.h>

#include "core/gguf_types/block_tensors.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize_gguf.h"
#include "core/ops/quantize/round_gguf.h"
#include "recipes/recipe.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/qat_testing.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using testing::floats;
using ::testing::HasSubstr;
using testing::LinearCase;
using testing::random_matrix;

// Values that the file's reader has for x [R,C].
Tensor read_back(const Tensor& x, BlockType type, std::span<const float> importance = {}) {
  const BlockFormat& format = block_format(type);
  const Tensor blocks = quantize_blocks(x, type, "x", importance);
  const Tensor values = Tensor::empty(x.shape(), DType::f32);
  for (std::int64_t i = 0; i < x.numel() / format.elements; ++i)
    dequantize_block(format, blocks.data<std::uint8_t>() + i * format.bytes,
                     values.data<float>() + i * format.elements);
  return values;
}

std::shared_ptr<const GgufTypes> types_of(std::initializer_list<std::pair<const std::string, BlockType>> types) {
  return std::make_shared<GgufTypes>(types);
}

TEST(RoundGguf, ValuesAreThoseOfTheFilesReader) {
  const Tensor x = random_matrix(6, 512, 1, 0.3f, DType::f32);
  std::vector<float> importance(512);
  for (std::size_t i = 0; i < importance.size(); ++i) importance[i] = static_cast<float>(i % 7) * 0.4f;
  const Tensor factors = Tensor::from_values<float>({512}, importance);
  for (const BlockFormat& format : block_formats()) {
    if (!can_round_gguf(format.type, DeviceType::cpu)) continue;
    const Tensor out = Tensor::empty_like(x);
    round_gguf({.x = x, .type = format.type, .out = out});
    EXPECT_EQ(floats(out), floats(read_back(x, format.type))) << format.name;
    const Tensor own = x.clone();
    round_gguf({.x = own, .type = format.type, .importance = factors, .out = own});
    EXPECT_EQ(floats(own), floats(read_back(x, format.type, importance))) << format.name;
  }
}

TEST(RoundGguf, Bf16IsTheReadersValueRounded) {
  const Tensor x = random_matrix(3, 256, 2, 0.3f, DType::bf16), out = Tensor::empty_like(x);
  round_gguf({.x = x, .type = BlockType::q4_k, .out = out});
  const std::vector<float> values = floats(read_back(x, BlockType::q4_k));
  for (std::size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(static_cast<float>(out.data<bfloat16>()[i]), static_cast<float>(bfloat16(values[i]))) << i;
}

TEST(RoundGguf, TypesThatAreReadOnlyAndWidthsThatBlocksDoNotDivideAreRefused) {
  const Tensor x = random_matrix(2, 96, 1, 1.0f, DType::f32), out = Tensor::empty_like(x);
  const auto refusal = [&](BlockType type) -> std::string {
    try {
      round_gguf({.x = x, .type = type, .out = out});
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  };
  EXPECT_THAT(refusal(BlockType::q2_k), HasSubstr("blocks of 256 (Q2_K) do not divide the columns"));
  EXPECT_THAT(refusal(BlockType::q4_0), HasSubstr("nothing was refused"));
  const Tensor wide = random_matrix(2, 256, 1, 1.0f, DType::f32);
  EXPECT_THROW(round_gguf({.x = wide, .type = BlockType::iq1_s, .out = wide}), Error);
}

// Rows of a fused layer have types of their own; the gradient passes all elements.
TEST(QatGguf, PartsOfAFusedLayerHaveTheirTypes) {
  const LinearCase c{random_matrix(6, 256, 1, 1.0f, DType::f32), random_matrix(12, 256, 2, 1.0f, DType::f32),
                     random_matrix(6, 12, 3, 1.0f, DType::f32)};
  const RecipeOptions options{.gguf_types = types_of({{"a.q", BlockType::q4_k}, {"a.v", BlockType::q6_k}})};
  const LinearPlan plan = kQatGguf.plan(
      {.name = "a.qv", .in_features = 256, .out_features = 12, .parts = {{"a.q", 8}, {"a.v", 4}}}, options);
  ASSERT_NE(plan.kernel, nullptr) << plan.skipped_because;
  EXPECT_EQ(plan.kernel->name(), "qat_gguf (Q4_K, Q6_K)");
  const Tensor w = Tensor::empty_like(c.w);
  Tensor(w.narrow(0, 0, 8)).copy_from(read_back(c.w.narrow(0, 0, 8), BlockType::q4_k));
  Tensor(w.narrow(0, 8, 4)).copy_from(read_back(c.w.narrow(0, 8, 4), BlockType::q6_k));
  const Tensor y = Tensor::empty({6, 12}, DType::f32), dx = Tensor::empty({6, 256}, DType::f32),
               dw = Tensor::empty({12, 256}, DType::f32);
  gemm({.a = c.x, .b = w, .c = y, .transpose_b = true});
  gemm({.a = c.dy, .b = w, .c = dx});
  gemm({.a = c.dy, .b = c.x, .c = dw, .transpose_a = true});
  const auto result = testing::run_linear(*plan.kernel, c, {}, DType::f32);
  EXPECT_EQ(floats(result.y), floats(y));
  EXPECT_EQ(floats(result.dx), floats(dx));
  EXPECT_EQ(floats(result.dw), floats(dw));
}

TEST(QatGguf, LayersWithoutATypeStayInHighPrecision) {
  const RecipeOptions options{.gguf_types = types_of({{"other", BlockType::q4_0}})};
  EXPECT_EQ(kQatGguf.plan({.name = "a", .in_features = 64, .out_features = 8}, options).skipped_because,
            "q4_k_m stores it in high precision");
  const RecipeOptions on_gpu{.target = Device{DeviceType::cuda, 0}, .gguf_types = types_of({{"a", BlockType::iq2_xs}})};
  EXPECT_THAT(kQatGguf.plan({.name = "a", .in_features = 256, .out_features = 8}, on_gpu).skipped_because,
              HasSubstr("there is no kernel for IQ2_XS on cuda devices"));
}

}  // namespace
}  // namespace quench::recipes
