// MXFP8 layers for block-scaled tensor cores, on the CPU, against the emulation, and the recipe's choice of them.

#include "recipes/mx/linear.h"

#include <gmock/gmock.h>

#include <set>

#include "recipes/float8/hardware.h"
#include "tests/recipes/float8_testing.h"
#include "tests/recipes/recipe_testing.h"

namespace quench::recipes {
namespace {

using namespace quench::testing;  // NOLINT: test helpers
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr EmulatedGemms kProducts[] = {
    {}, {.wgrad = false}, {.dgrad = false}, {.forward = false}, {.dgrad = false, .wgrad = false}};

// In f32 both compute f32 GEMMs of the same values, in another order.
TEST(MxLinear, GivesTheValuesOfTheEmulation) {
  struct Sizes {
    std::int64_t m, n, k;
  };
  std::uint64_t stream = 100;
  for (const Sizes& s : {Sizes{64, 96, 128}, Sizes{33, 40, 72}, Sizes{1, 16, 32}, Sizes{128, 7, 31}})
    for (const EmulatedGemms& products : kProducts)
      for (const MxScaleMode mode : {MxScaleMode::rceil, MxScaleMode::floor}) {
        SCOPED_TRACE(fmt::format("{} x {} x {}, {} {} {}, {}", s.m, s.n, s.k, products.forward, products.dgrad,
                                 products.wgrad, to_string(mode)));
        const LinearCase c{random_matrix(s.m, s.k, ++stream, 1.0f, DType::f32),
                           random_matrix(s.n, s.k, ++stream, 0.1f, DType::f32),
                           random_matrix(s.m, s.n, ++stream, 1.0f, DType::f32),
                           random_matrix(1, s.n, ++stream, 1.0f, DType::f32).view({s.n})};
        const LinearResult native = run_linear(*mx_linear(mode, products), c, {}, DType::f32),
                           emulated = run_linear(*emulated_linear(mx_rounding(mode), products, {}), c, {}, DType::f32);
        EXPECT_LT(quench::testing::distance(native.y, emulated.y), 1e-6);
        EXPECT_LT(quench::testing::distance(native.dx, emulated.dx), 1e-6);
        EXPECT_LT(quench::testing::distance(native.dw, emulated.dw), 1e-6);
      }
}

// In bf16 too, but for one rounding.
TEST(MxLinear, Bf16LayersAndAddedGradients) {
  const LinearCase c{random_matrix(48, 64, 1), random_matrix(32, 64, 2, 0.1f), random_matrix(48, 32, 3)};
  const auto native = mx_linear(MxScaleMode::rceil, {});
  const auto emulated = emulated_linear(mx_rounding(MxScaleMode::rceil), {}, {});
  const LinearResult a = run_linear(*native, c), b = run_linear(*emulated, c);
  EXPECT_LT(quench::testing::distance(as_f32(a.y), as_f32(b.y)), 1e-3);
  EXPECT_LT(quench::testing::distance(as_f32(a.dx), as_f32(b.dx)), 1e-3);
  EXPECT_LT(quench::testing::distance(as_f32(a.dw), as_f32(b.dw)), 1e-3);

  nn::Parameter weight;
  weight.variable = autograd::Variable::leaf(c.w, DType::f32);
  for (int pass = 0; pass < 2; ++pass) {
    autograd::Tape tape;
    autograd::Variable y;
    {
      const autograd::TapeScope scope(tape);
      y = native->apply(autograd::Variable(c.x), weight, {});
    }
    y.gradient()->contribute(c.dy);
    tape.backward();
  }
  const LinearResult once = run_linear(*native, c, {}, DType::f32);
  expect_same_values(weight.variable.grad(), scaled(once.dw, std::vector<int>(32, 1), {}), "dw");
}

TEST(MxLinear, TheRecipeEmulatesWithoutBlockScaledTensorCores) {
  constexpr Device kHost{}, kPlanned{DeviceType::meta, 0};
  EXPECT_EQ(mxfp8_path(kHost), GemmPath::emulated);
  EXPECT_EQ(mxfp8_path(kPlanned), GemmPath::fallback);
  const Recipe& recipe = find_recipe("mxfp8");
  EXPECT_THAT(describe_mxfp8_path(recipe, false, kHost), HasSubstr("emulated"));
  EXPECT_THAT(describe_mxfp8_path(recipe, false, kPlanned), HasSubstr("fallback: no block-scaled tensor cores"));
  EXPECT_THAT(describe_mxfp8_path(find_recipe("bf16"), false, kHost), IsEmpty());
  std::set<std::string_view> with;
  for (const Recipe& r : recipe_table())
    if (r.capabilities.mxfp8) with.insert(r.name);
  EXPECT_EQ(with, std::set<std::string_view>{"mxfp8"});
}

}  // namespace
}  // namespace quench::recipes
