// Ops of generation that stand for several others: gated_linear, normed_linear and cached_attention.

#include "core/ops/attention.h"
#include "core/ops/elementwise.h"
#include "core/ops/gated_linear.h"
#include "core/ops/gemm.h"
#include "core/ops/kv_cache/cached_attention.h"
#include "core/ops/norm.h"
#include "core/ops/normed_linear.h"
#include "core/ops/rope.h"
#include "core/ops/swiglu.h"
#include "tests/core/ops/op_testing.h"
#include "tests/core/ops/rope_tables.h"

namespace quench {
namespace {

using namespace testing;

TEST(GatedLinear, IsAProductAndItsUnit) {
  Generator random(3);
  for (const GatedActivation activation : kGatedActivations)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const std::int64_t rows : {1, 5}) {
        const Tensor x = random.normal({rows, 24}, dtype), weight = random.normal({14, 24}, dtype),
                     bias = random.normal({14}, dtype), y = Tensor::empty({rows, 7}, dtype);
        const Tensor gate_up = Tensor::empty({rows, 14}, dtype), expected = Tensor::empty({rows, 7}, dtype);
        gemm({.a = x, .b = weight, .c = gate_up, .transpose_b = true, .bias = bias});
        swiglu({.gate_up = gate_up, .out = expected, .activation = activation});
        gated_linear({.x = x, .weight = weight, .y = y, .bias = bias, .activation = activation});
        EXPECT_TRUE(same_bits(y, expected));
      }
}

TEST(GatedLinear, WrongShapesAreNamed) {
  const auto tensor = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  EXPECT_THROW(gated_linear({tensor({1, 4}), tensor({5, 4}), tensor({1, 2}), {}}), Error);
  EXPECT_THROW(gated_linear({tensor({1, 4}), tensor({6, 5}), tensor({1, 3}), {}}), Error);
  EXPECT_THROW(gated_linear({tensor({1, 4}), tensor({6, 4}), tensor({1, 6}), {}}), Error);
  EXPECT_THROW(gated_linear({tensor({1, 4}), tensor({6, 4}), tensor({1, 3}), tensor({3})}), Error);
}

TEST(NormedLinear, IsANormAndAProduct) {
  Generator random(5);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const std::int64_t rows : {1, 5})
      for (const std::optional<GatedActivation> gated :
           {std::optional<GatedActivation>(), std::optional(GatedActivation::silu),
            std::optional(GatedActivation::gelu_tanh)}) {
        const Tensor x = random.normal({rows, 24}, dtype), residual = random.normal({rows, 24}, dtype),
                     gain = random.normal({24}, dtype), weight = random.normal({14, 24}, dtype),
                     bias = random.normal({14}, dtype), y = Tensor::empty({rows, gated ? 7 : 14}, dtype),
                     sum = Tensor::empty_like(x), expected = Tensor::empty_like(y), normed = Tensor::empty_like(x),
                     expected_sum = Tensor::empty_like(x);
        rms_norm({.x = x,
                  .residual = residual,
                  .weight = gain,
                  .eps = 0.5f,
                  .y = normed,
                  .sum = expected_sum,
                  .rstd = Tensor::empty({rows}, DType::f32)});
        if (gated)
          gated_linear({.x = normed, .weight = weight, .y = expected, .bias = bias, .activation = *gated});
        else
          gemm({.a = normed, .b = weight, .c = expected, .transpose_b = true, .bias = bias});
        normed_linear({.x = x,
                       .norm = {.residual = residual, .weight = gain, .eps = 0.5f, .sum = sum},
                       .values = weight,
                       .packed = {},
                       .y = y,
                       .bias = bias,
                       .gated = gated});
        EXPECT_TRUE(same_bits(y, expected));
        EXPECT_TRUE(same_bits(sum, expected_sum));
      }
}

TEST(NormedLinear, WrongOperandsAreNamed) {
  const auto tensor = [](const Shape& shape) { return Tensor::zeros(shape, DType::f32); };
  const auto run = [&](const Tensor& residual, const Tensor& sum, const Tensor& gain, const Tensor& weight,
                       const Tensor& y) {
    normed_linear({.x = tensor({1, 4}),
                   .norm = {.residual = residual, .weight = gain, .sum = sum},
                   .values = weight,
                   .packed = {},
                   .y = y,
                   .bias = {},
                   .gated = GatedActivation::silu});
  };
  const Tensor row = tensor({1, 4}), other = tensor({1, 4}), gain = tensor({4}), weight = tensor({6, 4}),
               y = tensor({1, 3});
  run(row, other, gain, weight, y);
  EXPECT_THROW(run(row, row, gain, weight, y), Error);  // blocks would read what others have written
  EXPECT_THROW(run(tensor({1, 3}), other, gain, weight, y), Error);
  EXPECT_THROW(run(row, other, tensor({3}), weight, y), Error);
  EXPECT_THROW(run(row, other, gain, tensor({5, 4}), y), Error);
  EXPECT_THROW(run(row, other, gain, Tensor(), y), Error);
  EXPECT_THROW(run(row, other, gain, weight, tensor({1, 6})), Error);
}

// A text token by token, and in two pieces, against attention over all of it at once.
TEST(CachedAttention, MatchesAttentionWithoutCache) {
  constexpr std::int64_t kTokens = 11, kHeads = 4, kKvHeads = 2, kDim = 8, kWidth = (kHeads + 2 * kKvHeads) * kDim;
  Generator random(4);
  const Tables tables(kTokens, kDim / 2);
  const Tensor text = random.normal({kTokens, kWidth}, DType::f32), positions = Tensor::empty({kTokens}, DType::i32);
  for (std::int64_t i = 0; i < kTokens; ++i) positions.data<std::int32_t>()[i] = static_cast<std::int32_t>(i);
  for (const bool rotates : {true, false})
    for (const std::int64_t window : {0, 4}) {
      const auto heads = [](const Tensor& qkv, std::int64_t first, std::int64_t count) {
        return qkv.strided({qkv.size(0), count, kDim}, {kWidth, kDim, 1}, first * kDim);
      };
      const Tensor whole = text.clone(), expected = Tensor::empty({kTokens, kHeads, kDim}, DType::f32);
      if (rotates)
        rope({.x = heads(whole, 0, kHeads + kKvHeads), .cos = tables.cos, .sin = tables.sin, .positions = positions});
      const SequenceRange all{0, kTokens, 0, kTokens};
      attention({.q = heads(whole, 0, kHeads),
                 .k = heads(whole, kHeads, kKvHeads),
                 .v = heads(whole, kHeads + kKvHeads, kKvHeads),
                 .out = expected,
                 .lse = {},
                 .sequences = std::span(&all, 1),
                 .window = window,
                 .scale = 0.3f});
      for (const std::vector<std::int64_t>& pieces : {std::vector<std::int64_t>(kTokens, 1), {7, 4}}) {
        const Tensor cache = Tensor::zeros({kTokens + 2, 2 * kKvHeads * kDim}, DType::f32);
        const Tensor out = Tensor::empty({kTokens, kHeads * kDim}, DType::f32);
        std::int64_t begin = 0;
        for (const std::int64_t count : pieces) {
          const SequenceRange range{0, count, 0, begin + count};
          cached_attention({.qkv = text.narrow(0, begin, count).clone(),
                            .cos = rotates ? tables.cos : Tensor(),
                            .sin = rotates ? tables.sin : Tensor(),
                            .positions = positions.narrow(0, begin, count),
                            .cache = cache,
                            .out = out.narrow(0, begin, count),
                            .heads = kHeads,
                            .kv_heads = kKvHeads,
                            .sequences = std::span(&range, 1),
                            .window = window,
                            .scale = 0.3f});
          begin += count;
        }
        EXPECT_TRUE(close(out.view(expected.shape()), values(expected), 1e-6, 1e-6));
      }
    }
}

}  // namespace
}  // namespace quench
