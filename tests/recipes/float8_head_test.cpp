// The float8 head: logit gradients under the scale of their bound, as codes and as values.

#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "core/ops/gemm.h"
#include "core/ops/loss/lm_head_loss.h"
#include "core/ops/quantize/quantize.h"
#include "core/ops/scaled_gemm.h"
#include "tests/recipes/float8_testing.h"

namespace quench::recipes {
namespace {

using namespace quench::testing;  // NOLINT: test helpers
using autograd::Variable;

constexpr std::int64_t kHeadRows = 48, kHeadWidth = 32, kHeadVocabulary = 64;
constexpr float kGradScale = 1.0f / 48;

struct HeadCase {
  Tensor hidden, weight, labels;
};

HeadCase head_case(DType dtype) {
  const Tensor labels = Tensor::empty({kHeadRows}, DType::i32);
  for (std::int64_t i = 0; i < kHeadRows; ++i)
    labels.data<std::int32_t>()[i] = i == 5 ? kIgnoreLabel : static_cast<std::int32_t>(7 * i % kHeadVocabulary);
  return {random_matrix(kHeadRows, kHeadWidth, 4, 1.0f, dtype),
          random_matrix(kHeadVocabulary, kHeadWidth, 5, 1.0f, dtype), labels};
}

struct HeadResult {
  Tensor dhidden, dweight;
};

HeadResult run_head(std::string_view recipe, const HeadCase& c, const RecipeOptions& options = {},
                    std::int64_t chunk_rows = kHeadRows) {
  const auto kernel = make_kernel(recipe, LinearCase{c.hidden, c.weight, {}}, {}, options);
  nn::Parameter weight;
  weight.variable = Variable::leaf(c.weight);
  const Variable hidden = Variable::leaf(c.hidden);
  autograd::Tape tape;
  Variable loss;
  {
    const autograd::TapeScope scope(tape);
    const auto products = kernel->head_gemms(weight);
    loss = autograd::lm_head_loss(hidden, weight.variable, c.labels, kGradScale,
                                  {.chunk_rows = chunk_rows, .f32_logits = false}, nullptr, products.get());
  }
  tape.backward(loss);
  return {hidden.grad(), weight.variable.grad()};
}

QuantTensor tensor_codes(const Tensor& x, ElementFormat element, Orientation orientation = Orientation::natural) {
  const QuantTensor codes = cast_float8(x, float8_scale(amax(x, Granularity::tensor), element, false), element,
                                        Granularity::tensor, orientation);
  return orientation == Orientation::natural ? codes : codes.transposed_view();
}

TEST(Float8Head, LogitGradientsHaveTheScaleOfTheirBound) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    const HeadCase c = head_case(dtype);
    const HeadResult result = run_head("float8_tensorwise", c);

    const Tensor logits = Tensor::empty({kHeadRows, kHeadVocabulary}, dtype),
                 losses = Tensor::empty({kHeadRows}, DType::f32);
    gemm_emulated({tensor_codes(c.hidden, ElementFormat::e4m3), tensor_codes(c.weight, ElementFormat::e4m3), logits});
    const Tensor dlogits = Tensor::empty_like(logits);
    cross_entropy(
        {.logits = logits, .labels = c.labels, .losses = losses, .dlogits = dlogits, .grad_scale = kGradScale});
    const float bound[] = {kGradScale};
    const Tensor scale = float8_scale(Tensor::from_values<float>({}, bound), ElementFormat::e5m2, false, dtype);
    const Float8Pair codes = cast_float8_pair(dlogits, scale, ElementFormat::e5m2);
    const Tensor dhidden = Tensor::empty_like(c.hidden), dweight = Tensor::empty_like(c.weight);
    gemm_emulated({codes.natural, tensor_codes(c.weight, ElementFormat::e4m3, Orientation::transposed), dhidden});
    gemm_emulated({codes.transposed.transposed_view(),
                   tensor_codes(c.hidden, ElementFormat::e4m3, Orientation::transposed), dweight});
    expect_same_values(result.dhidden, dhidden, "dhidden");
    expect_same_values(result.dweight, dweight, "dweight");
  }
}

// Under a frozen body only wgrad runs, which reads no codes of the weight.
TEST(Float8Head, AFrozenBodyCastsTheWeightInOneOrientation) {
  const HeadCase c = head_case(DType::bf16);
  for (const char* recipe : {"float8_tensorwise", "float8_rowwise"}) {
    SCOPED_TRACE(recipe);
    const auto kernel = make_kernel(recipe, LinearCase{c.hidden, c.weight, {}}, {}, {});
    nn::Parameter weight;
    weight.variable = Variable::leaf(c.weight);
    autograd::Tape tape;
    const autograd::TapeScope scope(tape);
    // Bytes of the codes that a head keeps after its logits.
    const auto kept = [&](std::optional<bool> expected) {
      const auto head = kernel->head_gemms(weight);
      const Tensor logits = Tensor::empty({kHeadRows, kHeadVocabulary}, DType::bf16);
      const std::int64_t before = Allocator::of(Device{}).stats().current;
      if (expected) head->expect_hidden_gradients(*expected);
      head->logits(c.hidden, logits);
      return Allocator::of(Device{}).stats().current - before;
    };
    (void)kept(true);  // first buffers of the emulation
    EXPECT_EQ(kept(true), kept(std::nullopt));
    EXPECT_LE(kept(false), kept(true) - kHeadVocabulary * kHeadWidth / 2);
    // The same gradient of the weight.
    const HeadResult whole = run_head(recipe, c);
    const Variable hidden(c.hidden);
    nn::Parameter other;
    other.variable = Variable::leaf(c.weight);
    const auto products = kernel->head_gemms(other);
    const Variable loss =
        autograd::lm_head_loss(hidden, other.variable, c.labels, kGradScale,
                               {.chunk_rows = kHeadRows, .f32_logits = false}, nullptr, products.get());
    tape.backward(loss);
    expect_same_values(other.variable.grad(), whole.dweight, "dweight");
  }
}

// Health reads the gradients themselves, stochastic rounding too; neither changes how they are scaled.
TEST(Float8Head, RecordedHealthChangesNothing) {
  const HeadCase c = head_case(DType::bf16);
  for (const std::int64_t chunk_rows : {kHeadRows, std::int64_t{24}, std::int64_t{20}}) {
    RecipeOptions watched;
    watched.health = std::make_shared<HealthRecorder>();
    const HeadResult plain = run_head("float8_tensorwise", c, {}, chunk_rows);
    watched.health->arm();
    const HeadResult seen = run_head("float8_tensorwise", c, watched, chunk_rows);
    expect_same_values(seen.dhidden, plain.dhidden, "dhidden");
    expect_same_values(seen.dweight, plain.dweight, "dweight");
  }
}

}  // namespace
}  // namespace quench::recipes
