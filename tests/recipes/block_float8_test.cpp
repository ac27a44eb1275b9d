// Blockwise float8: casts as TorchAO's reference functions make them (tests/reference/make_block_float8.py), products
// of dense layers and of experts against sums in f64, and what a layer keeps for the backward pass.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/json/json.h"
#include "core/memory/allocator.h"
#include "core/number/float8.h"
#include "core/ops/experts/block_float8_gemm.h"
#include "core/ops/quantize/block_float8.h"
#include "recipes/recipe.h"
#include "tests/core/ops/op_testing.h"
#include "tests/reference_numbers.h"
#include "tests/testing.h"

namespace quench::recipes {
namespace {

using autograd::Variable;
using testing::Generator;
using ::testing::HasSubstr;
using testing::mixed;
using testing::same_bits;

constexpr std::int64_t kReferenceRows = 384, kReferenceColumns = 256;

Tensor reference_matrix() {
  Tensor x = Tensor::empty({kReferenceRows, kReferenceColumns}, DType::bf16);
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const std::uint32_t bits = mixed(static_cast<std::uint32_t>(i + 1));
    x.data<bfloat16>()[i] =
        bfloat16(std::ldexp(static_cast<float>(static_cast<int>(bits >> 24) - 128), -static_cast<int>(bits % 12)));
  }
  return x;
}

void expect_reference(const BlockFloat8& ours, const Json& theirs) {
  EXPECT_EQ(testing::checksum({static_cast<const std::byte*>(ours.codes.raw_data()), ours.codes.nbytes()}),
            theirs.at("codes").as_string());
  const auto& scales = theirs.at("scales").as_array();
  ASSERT_EQ(static_cast<std::int64_t>(scales.size()), ours.scales.numel());
  for (std::size_t i = 0; i < scales.size(); ++i)
    ASSERT_EQ(bit_cast<std::int32_t>(ours.scales.data<float>()[i]), scales[i].as_int()) << i;
}

TEST(BlockFloat8Golden, CastsAreTorchAos) {
  const Json reference = Json::parse_file(quench::testing::source_dir() / "tests/reference/block_float8.json");
  const Tensor x = reference_matrix();
  expect_reference(quantize_block_lines(x, Orientation::natural), reference.at("rows"));
  expect_reference(quantize_block_lines(x, Orientation::transposed), reference.at("columns"));
  expect_reference(quantize_block_squares(x.view({1, kReferenceRows, kReferenceColumns}), Orientation::natural),
                   reference.at("squares"));
}

Tensor transposed(const Tensor& x) {
  Tensor result = Tensor::empty({x.size(1), x.size(0)}, x.dtype());
  for (std::int64_t r = 0; r < x.size(0); ++r)
    for (std::int64_t c = 0; c < x.size(1); ++c)
      result.data<float>()[c * x.size(0) + r] = x.data<float>()[r * x.size(1) + c];
  return result;
}

// The columns of a matrix are the rows of its transpose, whatever the sizes; what lies outside is zeros.
TEST(BlockFloat8, OrientationChangesNoBit) {
  Generator random(5);
  for (const Shape& shape : {Shape{1, 1}, Shape{130, 257}, Shape{64, 96}, Shape{256, 8}, Shape{3, 400}}) {
    SCOPED_TRACE(shape.to_string());
    const Tensor x = random.normal(shape, DType::f32), turned = transposed(x);
    const auto batch = [](const Tensor& t) { return t.view({1, t.size(0), t.size(1)}); };
    const BlockFloat8 lines = quantize_block_lines(x, Orientation::transposed),
                      expected = quantize_block_lines(turned, Orientation::natural);
    EXPECT_TRUE(same_bits(lines.codes, expected.codes));
    EXPECT_TRUE(same_bits(lines.scales, expected.scales));
    const BlockFloat8 squares = quantize_block_squares(batch(x), Orientation::transposed),
                      same = quantize_block_squares(batch(turned), Orientation::natural);
    EXPECT_TRUE(same_bits(squares.codes, same.codes));
    EXPECT_TRUE(same_bits(squares.scales, same.scales));

    const Tensor values = Tensor::empty(shape, DType::f32), turned_values = Tensor::empty(turned.shape(), DType::f32);
    block_float8_values({lines, values, Orientation::transposed});
    block_float8_values({expected, turned_values});
    EXPECT_TRUE(same_bits(transposed(values), turned_values));
  }
}

TEST(BlockFloat8, NanAndInfinityStayInTheirBlock) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Generator random(6);
    const Tensor x = random.normal({2, 256}, DType::f32), out = Tensor::empty({2, 256}, DType::f32);
    x.data<float>()[256 + 200] = bad;
    block_float8_values({quantize_block_lines(x, Orientation::natural), out});
    for (std::int64_t i = 0; i < 512; ++i) EXPECT_EQ(std::isfinite(out.data<float>()[i]), i < 256 + 128) << i;
  }
  const Tensor zeros = Tensor::zeros({1, 128}, DType::f32), out = Tensor::empty({1, 128}, DType::f32);
  block_float8_values({quantize_block_lines(zeros, Orientation::natural), out});
  EXPECT_TRUE(same_bits(out, zeros));
}

// Rows of experts, or of one dense layer.
struct BlockLayer {
  std::vector<std::int32_t> ends;  // empty: dense
  std::int64_t rows, in, out;
  [[nodiscard]] std::int64_t experts() const { return ends.empty() ? 1 : static_cast<std::int64_t>(ends.size()); }
  [[nodiscard]] std::int64_t begin(std::int64_t e) const { return e > 0 ? ends[static_cast<std::size_t>(e - 1)] : 0; }
  [[nodiscard]] std::int64_t end(std::int64_t e) const {
    return ends.empty() ? rows : ends[static_cast<std::size_t>(e)];
  }
  [[nodiscard]] autograd::TokenPermutation token_permutation() const {
    autograd::TokenPermutation result;
    result.choices = 1;
    result.alignment = kFloat8Block;
    result.ends = Tensor::from_values<std::int32_t>({experts()}, ends);
    return result;
  }
};

struct LayerProducts {
  Tensor y, dx, dw;
};

LayerProducts run(const BlockLayer& layer, const Tensor& x, const Tensor& w, const Tensor& dy,
                  const RecipeOptions& options = {}, bool saved_by_producer = false) {
  const nn::LinearInfo info{.name = "layer", .in_features = layer.in, .out_features = layer.out};
  Variable in = Variable::leaf(x);
  if (saved_by_producer) in.set_saved_by_producer();
  nn::Parameter weight;
  weight.variable = Variable::leaf(w);
  autograd::Tape tape;
  Variable y;
  {
    const autograd::TapeScope scope(tape);
    if (layer.ends.empty())
      y = kFloat8Blockwise.plan(info, options).kernel->apply(in, weight, {});
    else
      y = kFloat8Blockwise.plan_experts(info, options).kernel->apply(in, weight, layer.token_permutation());
  }
  const Tensor value = y.value();
  y.gradient()->contribute(dy);
  tape.backward();
  return {value, in.grad(), weight.variable.grad()};
}

const BlockLayer kDenseLayer{{}, 200, 136, 264}, kExpertLayer{{128, 128, 384}, 512, 136, 264};

struct Operands {
  Tensor x, w, dy;
  explicit Operands(const BlockLayer& layer, DType dtype = DType::f32, std::uint32_t seed = 11) {
    Generator random(seed);
    x = random.normal({layer.rows, layer.in}, dtype);
    w = random.normal({layer.experts() * layer.out, layer.in}, dtype, 0.1);
    dy = random.normal({layer.rows, layer.out}, dtype);
  }
};

Tensor lines_of(const Tensor& x, Orientation orientation) {
  Tensor out = Tensor::empty(x.shape(), DType::f32);
  block_float8_values({quantize_block_lines(x, orientation), out, orientation});
  return out;
}

class BlockGemmsOf : public ::testing::TestWithParam<const BlockLayer*> {
 protected:
  const BlockLayer& layer = *GetParam();
};

// LayerProducts of what the operands are worth, summed in f64. f32 sums of n terms are off by n roundings at most.
TEST_P(BlockGemmsOf, SumsMatchDequantizedValues) {
  const Operands o(layer);
  const LayerProducts ours = run(layer, o.x, o.w, o.dy);
  const Tensor x = lines_of(o.x, Orientation::natural), x_columns = lines_of(o.x, Orientation::transposed),
               dy = lines_of(o.dy, Orientation::natural), dy_columns = lines_of(o.dy, Orientation::transposed);
  const Tensor w = Tensor::empty({layer.experts(), layer.out, layer.in}, DType::f32);
  block_float8_values({quantize_block_squares(o.w.view(w.shape()), Orientation::natural), w});
  const auto expect = [](float actual, double sum, double magnitudes, const std::string& where) {
    ASSERT_NEAR(static_cast<double>(actual), sum, 400 * 0x1.0p-24 * magnitudes) << where;
  };
  const auto dot = [](std::int64_t n, const auto& left, const auto& right) {
    std::pair<double, double> sums{0, 0};
    for (std::int64_t i = 0; i < n; ++i) {
      const double product = static_cast<double>(left(i)) * static_cast<double>(right(i));
      sums.first += product;
      sums.second += std::abs(product);
    }
    return sums;
  };
  for (std::int64_t e = 0; e < layer.experts(); ++e) {
    const float* of_expert = w.data<float>() + e * layer.out * layer.in;
    for (std::int64_t r = layer.begin(e); r < layer.end(e); r += 3) {
      for (std::int64_t n = 0; n < layer.out; ++n) {
        const auto [sum, most] = dot(
            layer.in, [&](auto k) { return x.data<float>()[r * layer.in + k]; },
            [&](auto k) { return of_expert[n * layer.in + k]; });
        expect(ours.y.data<float>()[r * layer.out + n], sum, most, fmt::format("y {} {}", r, n));
      }
      for (std::int64_t k = 0; k < layer.in; ++k) {
        const auto [sum, most] = dot(
            layer.out, [&](auto n) { return dy.data<float>()[r * layer.out + n]; },
            [&](auto n) { return of_expert[n * layer.in + k]; });
        expect(ours.dx.data<float>()[r * layer.in + k], sum, most, fmt::format("dx {} {}", r, k));
      }
    }
    for (std::int64_t n = 0; n < layer.out; n += 5)
      for (std::int64_t k = 0; k < layer.in; ++k) {
        const auto [sum, most] = dot(
            layer.end(e) - layer.begin(e),
            [&](auto r) { return dy_columns.data<float>()[(layer.begin(e) + r) * layer.out + n]; },
            [&](auto r) { return x_columns.data<float>()[(layer.begin(e) + r) * layer.in + k]; });
        expect(ours.dw.data<float>()[(e * layer.out + n) * layer.in + k], sum, most, fmt::format("dw {} {}", n, k));
      }
  }
  for (std::int64_t i = layer.end(layer.experts() - 1) * layer.out; i < ours.y.numel(); ++i)
    ASSERT_EQ(ours.y.data<float>()[i], 0.0f) << "behind the last group";
}

// Numerics 12.2 (a): an index that a product keeps has a scale of its own. (b): so has every block of the contraction.
TEST_P(BlockGemmsOf, ScalesStandWhereTheyShould) {
  const Operands o(layer);
  const LayerProducts plain = run(layer, o.x, o.w, o.dy);
  Generator random(17);
  const auto powers = [&](std::int64_t n, std::int64_t block) {
    std::vector<float> result;
    for (std::int64_t i = 0; i < n; ++i)
      result.push_back(i % block > 0 ? result.back() : std::ldexp(1.0f, static_cast<int>(random.between(-12, 12))));
    return result;
  };
  const auto scaled = [](const Tensor& t, const std::vector<float>& of_row, const std::vector<float>& of_column,
                         bool inverse = false) {
    Tensor result = t.clone();
    for (std::int64_t r = 0; r < t.size(0); ++r)
      for (std::int64_t c = 0; c < t.size(1); ++c) {
        const float factor = (of_row.empty() ? 1.0f : of_row[static_cast<std::size_t>(r) % of_row.size()]) *
                             (of_column.empty() ? 1.0f : of_column[static_cast<std::size_t>(c)]);
        result.data<float>()[r * t.size(1) + c] *= inverse ? 1 / factor : factor;
      }
    return result;
  };
  const auto rows = powers(layer.rows, 1), ins = powers(layer.in, 1), outs = powers(layer.out, 1);
  const auto in_blocks = powers(layer.in, kFloat8Block), out_blocks = powers(layer.out, kFloat8Block),
             row_blocks = powers(layer.rows, kFloat8Block);
  EXPECT_TRUE(same_bits(run(layer, scaled(o.x, rows, {}), scaled(o.w, out_blocks, {}), o.dy).y,
                        scaled(plain.y, rows, out_blocks)));
  EXPECT_TRUE(same_bits(run(layer, o.x, scaled(o.w, {}, in_blocks), scaled(o.dy, rows, {})).dx,
                        scaled(plain.dx, rows, in_blocks)));
  EXPECT_TRUE(same_bits(run(layer, scaled(o.x, {}, ins), o.w, scaled(o.dy, {}, outs)).dw, scaled(plain.dw, outs, ins)));
  EXPECT_TRUE(same_bits(run(layer, scaled(o.x, {}, in_blocks), scaled(o.w, {}, in_blocks, true), o.dy).y, plain.y));
  EXPECT_TRUE(same_bits(run(layer, o.x, scaled(o.w, out_blocks, {}, true), scaled(o.dy, {}, out_blocks)).dx, plain.dx));
  EXPECT_TRUE(same_bits(run(layer, scaled(o.x, row_blocks, {}), o.w, scaled(o.dy, row_blocks, {}, true)).dw, plain.dw));
}

TEST_P(BlockGemmsOf, WhatIsKeptChangesNoBit) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Operands o(layer, dtype);
    const LayerProducts codes = run(layer, o.x, o.w, o.dy), input = run(layer, o.x, o.w, o.dy, {}, true),
                        emulated = run(layer, o.x, o.w, o.dy, {.emulate = true});
    for (const LayerProducts* other : {&input, &emulated}) {
      EXPECT_TRUE(same_bits(codes.y, other->y));
      EXPECT_TRUE(same_bits(codes.dx, other->dx));
      EXPECT_TRUE(same_bits(codes.dw, other->dw));
    }
  }
}

TEST_P(BlockGemmsOf, CanStayInHighPrecision) {
  const Operands o(layer);
  const LayerProducts all = run(layer, o.x, o.w, o.dy);
  for (const LinearGemm gemm : {LinearGemm::forward, LinearGemm::dgrad, LinearGemm::wgrad}) {
    const LayerProducts some = run(layer, o.x, o.w, o.dy, {.high_precision = {gemm}});
    EXPECT_EQ(same_bits(some.y, all.y), gemm != LinearGemm::forward);
    EXPECT_EQ(same_bits(some.dx, all.dx), gemm != LinearGemm::dgrad);
    EXPECT_EQ(same_bits(some.dw, all.dw), gemm != LinearGemm::wgrad);
  }
}

// Forward, dgrad and wgrad GEMMs of four experts, one without rows, with rows after the last one.
TEST(BlockFloat8, GroupByGroupIsTheSameToTheBit) {
  constexpr std::int64_t kRows = 640, kCount = 4, kOut = 72, kIn = 200;
  const Tensor ends = Tensor::from_values<std::int32_t>({kCount}, std::array<std::int32_t, 4>{128, 128, 384, 512});
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Generator random(23);
    const Tensor x = random.normal({kRows, kIn}, dtype), dy = random.normal({kRows, kOut}, dtype),
                 before = random.normal({kCount, kOut, kIn}, dtype);
    const BlockFloat8 w = quantize_block_squares(random.normal({kCount, kOut, kIn}, dtype), Orientation::natural);
    const auto products = [&](BlockGemms units) {
      const Tensor y = random.normal({kRows, kOut}, dtype), fresh = Tensor::empty(before.shape(), dtype);
      const Tensor added = before.clone();
      grouped_gemm(BlockFloat8GemmArgs{
          .a = quantize_block_lines(x, Orientation::natural), .b = w, .ends = ends, .c = y, .gemms = units});
      for (const auto& [dw, beta] : {std::pair{fresh, 0.0f}, {added, 1.0f}})
        grouped_wgrad(BlockFloat8WgradArgs{.a = quantize_block_lines(dy, Orientation::transposed),
                                           .b = quantize_block_lines(x, Orientation::transposed),
                                           .ends = ends,
                                           .c = dw,
                                           .beta = beta,
                                           .gemms = units});
      return std::array{y, fresh, added};
    };
    const auto whole = products(BlockGemms::emulated), by_group = products(BlockGemms::emulated_by_group);
    for (std::size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(same_bits(whole[i], by_group[i])) << to_string(dtype) << " " << i;
  }
}

// The CPU has the values of one expert at a time, and its plan says so: `quench estimate` once counted those of all.
TEST(BlockFloat8, ThePlanForTheCpuHoldsTheValuesOfOneExpert) {
  constexpr Device kMeta{DeviceType::meta, 0};
  constexpr std::int64_t kRows = 128, kCount = 64, kSize = 256, kOfOne = kSize * kSize * 4;
  const auto peak = [&](const RecipeOptions& options) {
    const ExpertPlan plan = kFloat8Blockwise.plan_experts({"experts.down_proj", kSize, kSize, false, kMeta}, options);
    nn::Parameter weight = nn::make_parameter({kCount * kSize, kSize}, {.dtype = DType::bf16, .device = kMeta},
                                              nn::Initializer::normal, 0.02f, kCount);
    const autograd::TokenPermutation rows{.choices = 1,
                                          .alignment = kFloat8Block,
                                          .counts = Tensor::empty({kCount}, DType::f32, kMeta),
                                          .ends = Tensor::empty({kCount}, DType::i32, kMeta),
                                          .rows = Tensor::empty({kRows, 1}, DType::i32, kMeta),
                                          .pairs = Tensor::empty({kRows}, DType::i32, kMeta)};
    const Variable x(Tensor::empty({kRows, kSize}, DType::bf16, kMeta));
    Allocator::of(kMeta).reset_peak();
    const std::int64_t before = Allocator::of(kMeta).stats().current;
    (void)plan.kernel->apply(x, weight, rows);
    return Allocator::of(kMeta).stats().peak - before;
  };
  const std::int64_t codes = kCount * kSize * kSize;
  EXPECT_LT(peak({.target = Device{}, .emulate = true}), codes + 4 * kOfOne);
  EXPECT_GT(peak({.target = kMeta, .emulate = true}), kCount * kOfOne) << "a GPU's host does not see the groups";
}

INSTANTIATE_TEST_SUITE_P(Layers, BlockGemmsOf, ::testing::Values(&kDenseLayer, &kExpertLayer),
                         [](const auto& layer) { return layer.param->ends.empty() ? "Dense" : "Experts"; });

TEST(BlockFloat8, SaysWhichLayersItLeavesOut) {
  EXPECT_THAT(kFloat8Blockwise.plan({.name = "qkv_proj", .in_features = 8, .out_features = 8, .has_bias = true}, {})
                  .skipped_because,
              HasSubstr("bias"));
  EXPECT_THAT(kFloat8Blockwise.plan({.name = "lm_head", .in_features = 8, .out_features = 8}, {}).skipped_because,
              HasSubstr("head"));
  const RecipeOptions none{.high_precision = {LinearGemm::forward, LinearGemm::dgrad, LinearGemm::wgrad}};
  EXPECT_THAT(kFloat8Blockwise.plan_experts({.name = "experts"}, none).skipped_because,
              HasSubstr("recipe.high_precision_gemms"));
}

}  // namespace
}  // namespace quench::recipes
