// Layers of quantization-aware training beyond the golden vectors: the formats without any, several micro-batches,
// adapters inside what is quantized.

#include "recipes/qat/qat_linear.h"

#include <gmock/gmock.h>

#include "autograd/functions.h"
#include "core/ops/gemm.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/quantize/sparsity_2_4.h"
#include "recipes/recipe.h"
#include "tests/core/ops/op_testing.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/qat_testing.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::floats;
using ::testing::HasSubstr;
using testing::integers;
using testing::LinearCase;
using testing::random_matrix;

TEST(FakeQuantizer, Float8IsTheCodeTimesItsScale) {
  const Tensor x = random_matrix(5, 24, 1, 3.0f, DType::f32);
  x.data<float>()[24] = 0.0f;
  for (std::int64_t i = 48; i < 72; ++i) x.data<float>()[i] = 0.0f;  // a row of zeros stays
  const Tensor out = fake_quantize(x, {.kind = FakeFormat::Kind::float8}, false).values;
  for (std::int64_t row = 0; row < 5; ++row) {
    float most = 0;
    for (std::int64_t i = row * 24; i < row * 24 + 24; ++i) most = std::max(most, std::abs(x.data<float>()[i]));
    const float scale = most == 0 ? 1.0f : most / 448;
    for (std::int64_t i = row * 24; i < row * 24 + 24; ++i)
      EXPECT_EQ(out.data<float>()[i], E4m3::decode(E4m3::encode(x.data<float>()[i] / scale)) * scale) << i;
  }
}

TEST(FakeQuantizer, BlockFormatsMatchCasts) {
  const Tensor x = random_matrix(4, 64, 1, 1.0f, DType::bf16);
  EXPECT_EQ(floats(fake_quantize(x, {.kind = FakeFormat::Kind::mx, .element = ElementFormat::e2m1}, false).values),
            floats(dequantize(quantize_mx(x, {.element = ElementFormat::e2m1}), DType::bf16)));
  EXPECT_EQ(floats(fake_quantize(x, {.kind = FakeFormat::Kind::nvfp4}, false).values),
            floats(dequantize(quantize_nvfp4(x, nvfp4_global_scale(amax(x, Granularity::tensor))), DType::bf16)));
}

TEST(QatRecipes, LayersThatGroupsDoNotDivideAreNamedWithSizesThatFit) {
  const auto reason = [](const char* recipe, std::int64_t in, const RecipeOptions& options = {}) {
    return find_recipe(recipe).plan({.name = "layer", .in_features = in, .out_features = 8}, options).skipped_because;
  };
  EXPECT_EQ(reason("qat_int4_weight_only", 48),
            "recipe.group_size 32 does not divide its 48 inputs; 8, 12, 16, 24, 48 and 0 (the whole row) would fit");
  EXPECT_EQ(reason("qat_int4_weight_only", 4),
            "recipe.group_size 32 does not divide its 4 inputs; 0 (the whole row) would fit");
  EXPECT_EQ(reason("qat_int4_weight_only", 4, {.group_size = 0}), "");
  EXPECT_EQ(reason("qat_int4_weight_only", 48, {.group_size = 24}), "");
  EXPECT_EQ(reason("qat_mxfp4", 48), "blocks of 32 do not divide its 48 inputs");
  EXPECT_EQ(reason("qat_nvfp4", 48), "");
  EXPECT_EQ(reason("qat_float8", 7), "");
}

TEST(QatLinear, BitsAndMappingAreOptions) {
  const LinearCase c{random_matrix(6, 64, 1, 1.0f, DType::f32), random_matrix(5, 64, 2, 1.0f, DType::f32),
                     random_matrix(6, 5, 3, 1.0f, DType::f32)};
  for (const int bits : {2, 3, 8})
    for (const bool asymmetric : {false, true}) {
      const auto kernel = testing::make_kernel(
          "qat_intx_weight_only", c, {}, {.weight_bits = bits, .group_size = 16, .asymmetric_weights = asymmetric});
      const Tensor w =
          fake_quantize(c.w, integers(bits, 16, asymmetric ? IntMapping::asymmetric : IntMapping::symmetric), false)
              .values;
      const Tensor expected = Tensor::empty({6, 5}, DType::f32);
      gemm({.a = c.x, .b = w, .c = expected, .transpose_b = true});
      EXPECT_EQ(floats(testing::run_linear(*kernel, c, {}, DType::f32).y), floats(expected)) << bits;
    }
}

// The product sees pruned weights, quantized or not; the gradient of the weight is that of a dense one.
TEST(SparseRecipes, GradientsReachWhatIsPruned) {
  const LinearCase c{random_matrix(24, 64, 1, 1.0f, DType::f32), random_matrix(16, 64, 2, 1.0f, DType::f32),
                     random_matrix(24, 16, 3, 1.0f, DType::f32)};
  const Tensor dense = Tensor::empty({16, 64}, DType::f32);
  gemm({.a = c.dy, .b = c.x, .c = dense, .transpose_a = true});
  for (const auto& [name, rule] :
       {std::pair{"sparse24", Sparsity24::magnitude}, {"sparse24_transposable", Sparsity24::transposable}}) {
    const Tensor w = pruned_2_4(c.w, rule), y = Tensor::empty({24, 16}, DType::f32),
                 dx = Tensor::empty({24, 64}, DType::f32);
    gemm({.a = c.x, .b = w, .c = y, .transpose_b = true});
    gemm({.a = c.dy, .b = w, .c = dx});
    const auto result = testing::run_linear(*testing::make_kernel(name, c, {}), c, {}, DType::f32);
    EXPECT_EQ(floats(result.y), floats(y)) << name;
    EXPECT_EQ(floats(result.dx), floats(dx)) << name;
    EXPECT_EQ(floats(result.dw), floats(dense)) << name;
  }
  const Tensor codes = fake_quantize(pruned_2_4(c.w, Sparsity24::magnitude), integers(4, 32), false).values,
               y = Tensor::empty({24, 16}, DType::f32);
  gemm({.a = c.x, .b = codes, .c = y, .transpose_b = true});
  const auto kernel = testing::make_kernel("qat_int4_weight_only_sparse24", c, {});
  EXPECT_EQ(floats(testing::run_linear(*kernel, c, {}, DType::f32).y), floats(y));
}

TEST(SparseRecipes, ShapesThatTheyCannotPruneAreSkippedByName) {
  const auto reason = [](const char* recipe, std::int64_t in, std::int64_t out) {
    return find_recipe(recipe).plan({.name = "layer", .in_features = in, .out_features = out}, {}).skipped_because;
  };
  EXPECT_EQ(reason("sparse24", 62, 8), "its 62 inputs are no multiple of 4");
  EXPECT_EQ(reason("sparse24", 64, 6), "");
  EXPECT_EQ(reason("sparse24_transposable", 64, 6), "its 6 outputs are no multiple of 4");
  EXPECT_EQ(reason("qat_int4_weight_only_sparse24", 48, 8),
            "recipe.group_size 32 does not divide its 48 inputs; 8, 12, 16, 24, 48 and 0 (the whole row) would fit");
}

// Gradients of two micro-batches, with the weight's codes kept between them and made anew.
TEST(QatLinear, MicroBatchesAddUpUnderTheMask) {
  const LinearCase first{random_matrix(24, 64, 1), random_matrix(16, 64, 2), random_matrix(24, 16, 3)};
  const LinearCase second{random_matrix(24, 64, 4), first.w, random_matrix(24, 16, 5)};
  std::vector<std::vector<float>> sums;
  for (const bool keep : {false, true}) {
    const auto kernel = testing::make_kernel("qat_int8dyn_int4", first, {}, {.keep_weights = keep});
    nn::Parameter weight;
    weight.variable = Variable::leaf(first.w, DType::f32);
    for (const LinearCase& c : {first, second}) {
      const Variable x = Variable::leaf(c.x);
      autograd::Tape tape;
      Variable y;
      {
        const autograd::TapeScope scope(tape);
        y = kernel->apply(x, weight, {});
      }
      y.gradient()->contribute(c.dy);
      tape.backward();
    }
    sums.push_back(floats(weight.variable.grad()));
  }
  EXPECT_EQ(sums[0], sums[1]);
  const auto alone = [&](const LinearCase& c) {
    return floats(testing::run_linear(*testing::make_kernel("qat_int8dyn_int4", c, {}), c, {}, DType::f32).dw);
  };
  const std::vector<float> a = alone(first), b = alone(second);
  int zeros = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_NEAR(sums[0][i], a[i] + b[i], 1e-3);
    EXPECT_EQ(sums[0][i] == 0, a[i] == 0 && b[i] == 0);
    zeros += sums[0][i] == 0 ? 1 : 0;
  }
  EXPECT_GT(zeros, 0) << "of clipped weights";
}

// What products see of x is kept in its place, but where x is there in the backward pass anyway. Gradients do not
// differ.
TEST(QatLinear, InputsAreKeptOnce) {
  const LinearCase c{random_matrix(24, 64, 1), random_matrix(16, 64, 2), random_matrix(24, 16, 3)};
  struct Kept {
    bool input;
    std::vector<float> dx, dw;
  };
  const auto run = [&](const char* recipe, autograd::Recompute level, bool saved_by_producer) {
    const auto kernel = testing::make_kernel(recipe, c, {});
    nn::Parameter weight, norm;
    weight.variable = Variable::leaf(c.w, DType::f32);
    norm.variable = Variable(random_matrix(1, 64, 4).view({64}));
    const Variable in = Variable::leaf(c.x);
    autograd::Tape tape(level);
    Variable y;
    Kept kept{};
    {
      const autograd::TapeScope scope(tape);
      Variable x = autograd::rms_norm(in, norm.weight(), 1e-5f, {});
      if (saved_by_producer) x.set_saved_by_producer();
      const long handles = x.value().handles();
      y = kernel->apply(x, weight, {});
      kept.input = !x.value().is_exclusive(handles);
    }
    y.gradient()->contribute(c.dy);
    tape.backward();
    kept.dx = floats(in.grad());
    kept.dw = floats(weight.variable.grad());
    return kept;
  };
  for (const char* recipe : {"qat_int8dyn_int4", "qat_float8", "qat_nvfp4", "qat_int4_weight_only"}) {
    SCOPED_TRACE(recipe);
    const Kept plain = run(recipe, autograd::Recompute::none, false),
               held = run(recipe, autograd::Recompute::none, true),
               recomputed = run(recipe, autograd::Recompute::selective, false);
    // Without a format of its own, what products see of x is x.
    EXPECT_EQ(plain.input, std::string_view(recipe) == "qat_int4_weight_only");
    EXPECT_TRUE(held.input);
    EXPECT_FALSE(recomputed.input);
    EXPECT_EQ(plain.dx, held.dx);
    EXPECT_EQ(plain.dw, held.dw);
    EXPECT_EQ(plain.dx, recomputed.dx);
    EXPECT_EQ(plain.dw, recomputed.dw);
  }
}

TEST(QatLinear, AnAdapterTakesPartInWhatIsQuantized) {
  const LinearCase c{random_matrix(24, 64, 1, 1.0f, DType::f32), random_matrix(16, 64, 2, 1.0f, DType::f32),
                     random_matrix(24, 16, 3, 1.0f, DType::f32)};
  std::vector<nn::LowRankPiece> pieces{{"q_proj", 0, 6, 0, 3, 0.5f}, {"v_proj", 9, 5, 0, 2, 2.0f}};
  const auto adapter = std::make_shared<nn::LowRankAdapter>(std::move(pieces), 64, nn::ParameterOptions{});
  std::uint64_t stream = 30;
  for (const nn::KernelParameter& own : adapter->parameters()) {
    Tensor value = own.parameter->variable.value();
    value.copy_from(random_matrix(value.size(0), value.size(1), ++stream, 0.3f, DType::f32));
  }
  const auto plain = testing::make_kernel("qat_int8dyn_int4", c, {});
  const auto kernel = plain->with_adapter(adapter);
  ASSERT_NE(kernel, nullptr);
  EXPECT_EQ(kernel->name(), "qat_int8dyn_int4 of W + lora r3/r2");

  // The merged layer, whose weight gradient is that of W + its update.
  LinearCase merged = c;
  merged.w = c.w.clone();
  adapter->add_to(merged.w);
  const FakeFormat input = integers(8, 0, IntMapping::asymmetric);
  const auto reference = testing::run_linear(*plain, merged, {}, DType::f32);

  const Variable x = Variable::leaf(c.x);
  nn::Parameter frozen;
  frozen.variable = Variable(c.w);
  autograd::Tape tape;
  Variable y;
  {
    const autograd::TapeScope scope(tape);
    y = kernel->apply(x, frozen, {});
  }
  EXPECT_EQ(floats(y.value()), floats(reference.y));
  y.gradient()->contribute(c.dy);
  tape.backward();
  EXPECT_EQ(floats(x.grad()), floats(reference.dx));

  // dB = scale * dW A^T and dA = scale * B^T dW, with dW = dy^T q(x).
  const Tensor dw = Tensor::empty({16, 64}, DType::f32), qx = fake_quantize(c.x, input, false).values;
  gemm({.a = c.dy, .b = qx, .c = dw, .transpose_a = true});
  for (std::size_t i = 0; i < 2; ++i) {
    const nn::LowRankPiece& piece = adapter->pieces()[i];
    const Tensor rows = dw.narrow(0, piece.row_begin, piece.rows);
    const Tensor a = adapter->a().variable.value().narrow(0, piece.rank_begin, piece.rank);
    const Tensor db = Tensor::empty({piece.rows, piece.rank}, DType::f32),
                 da = Tensor::empty({piece.rank, 64}, DType::f32);
    gemm({.a = rows, .b = a, .c = db, .transpose_b = true, .alpha = piece.scale});
    gemm({.a = adapter->b(i).variable.value(), .b = rows, .c = da, .transpose_a = true, .alpha = piece.scale});
    const auto close = [](const Tensor& actual, const Tensor& expected) {
      const std::vector<float> left = floats(actual), right = floats(expected);
      return testing::relative_l2(std::span<const float>(left), std::span<const float>(right));
    };
    EXPECT_LT(close(adapter->b(i).variable.grad(), db), 1e-5);
    EXPECT_LT(close(adapter->a().variable.grad().narrow(0, piece.rank_begin, piece.rank), da), 1e-5);
  }
}

}  // namespace
}  // namespace quench::recipes
