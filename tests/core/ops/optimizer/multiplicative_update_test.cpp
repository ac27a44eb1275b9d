#include "core/ops/optimizer/multiplicative_update.h"

#include "tests/core/ops/golden_file.h"
#include "tests/core/ops/op_testing.h"

namespace quench::testing {
namespace {

// Values of the size of scales.
Tensor positive(Generator& random, std::int64_t n, DType dtype) {
  const Tensor x = random.normal({n}, dtype);
  for (std::int64_t i = 0; i < n; ++i) set_element(x, i, 1e-2 * std::exp(get_element(x, i)));
  return x;
}

double factor(double d) {
  return d < 0 ? 1 / (1 - d) : 1 + d;
}

TEST(MultiplicativeUpdate, FollowsTheFormula) {
  Generator random(1);
  std::vector<MultiplicativeUpdateTensor> tensors;
  std::vector<std::vector<double>> expected;
  for (const std::int64_t n : {1, 37, 20000}) {
    MultiplicativeUpdateTensor t{.param = positive(random, n, DType::f32), .relative = random.normal({n}, DType::f32)};
    std::vector<double>& after = expected.emplace_back(values(t.param));
    for (std::size_t i = 0; i < after.size(); ++i)
      after[i] *= factor(get_element(t.relative, static_cast<std::int64_t>(i)));
    tensors.push_back(std::move(t));
  }
  multiplicative_update({.tensors = tensors});
  for (std::size_t i = 0; i < tensors.size(); ++i) EXPECT_TRUE(close(tensors[i].param, expected[i], 3e-7, 0));
}

// However far a step goes, what it leaves is a positive number.
TEST(MultiplicativeUpdate, StaysAmongPositiveNumbers) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const float d : {-1e30f, -1e6f, -1.0f, 0.0f, 1.0f, 1e6f, 1e30f}) {
      MultiplicativeUpdateTensor t{.param = Tensor::empty({9}, dtype), .relative = Tensor::empty({9}, DType::f32)};
      fill(t.param, 0.25);
      fill(t.relative, static_cast<double>(d));
      for (int step = 1; step <= 20; ++step) multiplicative_update({.tensors = {&t, 1}, .step = step});
      for (const double x : values(t.param)) {
        EXPECT_GT(x, 0) << d;
        EXPECT_TRUE(std::isfinite(x)) << d;
        EXPECT_EQ(x == 0.25, d == 0) << d;
      }
    }
  MultiplicativeUpdateTensor t{.param = Tensor::empty({1}, DType::f32), .relative = Tensor::empty({1}, DType::f32)};
  fill(t.param, 0.25);
  fill(t.relative, std::nan(""));
  multiplicative_update({.tensors = {&t, 1}});
  EXPECT_TRUE(std::isnan(get_element(t.param, 0))) << "nobody hides what went wrong";
}

TEST(MultiplicativeUpdate, OneForthAndTheSameBackCancel) {
  Generator random(2);
  MultiplicativeUpdateTensor t{.param = positive(random, 100, DType::f32),
                               .relative = random.normal({100}, DType::f32)};
  const std::vector<double> before = values(t.param);
  multiplicative_update({.tensors = {&t, 1}});
  for (std::int64_t i = 0; i < 100; ++i) set_element(t.relative, i, -get_element(t.relative, i));
  multiplicative_update({.tensors = {&t, 1}});
  EXPECT_TRUE(close(t.param, before, 4e-7, 0));
}

TEST(MultiplicativeUpdate, MasterValuesCarryTheStep) {
  Generator random(3);
  MultiplicativeUpdateTensor t{.param = positive(random, 100, DType::bf16),
                               .relative = Tensor::empty({100}, DType::f32),
                               .master = Tensor::empty({100}, DType::f32)};
  fill(t.relative, 1e-4);
  for (std::int64_t i = 0; i < 100; ++i) set_element(t.master, i, get_element(t.param, i));
  std::vector<double> expected = values(t.master);
  for (int step = 1; step <= 3; ++step)
    multiplicative_update({.tensors = {&t, 1}, .step = step, .stochastic_rounding = true});
  for (double& x : expected) x *= std::pow(1 + 1e-4, 3);
  EXPECT_TRUE(close(t.master, expected, 1e-6, 0));
  for (std::int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(t.param.data<bfloat16>()[i].bits, bfloat16(t.master.data<float>()[i]).bits);
}

TEST(MultiplicativeUpdate, ShardedUpdateRoundsLikeUnsharded) {
  Generator random(4);
  MultiplicativeUpdateTensor whole{
      .param = positive(random, 1000, DType::bf16), .relative = random.normal({1000}, DType::f32), .random_stream = 5};
  MultiplicativeUpdateTensor copy = whole, nearest = whole;
  copy.param = whole.param.clone();
  nearest.param = whole.param.clone();
  std::vector<MultiplicativeUpdateTensor> shards;
  for (const auto& [begin, n] : {std::pair{0, 37}, std::pair{37, 963}}) {
    MultiplicativeUpdateTensor shard = copy;
    for (Tensor* x : {&shard.param, &shard.relative}) *x = x->narrow(0, begin, n);
    shard.element_offset = begin;
    shards.push_back(shard);
  }
  multiplicative_update({.tensors = {&whole, 1}, .step = 3, .stochastic_rounding = true});
  multiplicative_update({.tensors = shards, .step = 3, .stochastic_rounding = true});
  EXPECT_TRUE(same_bytes(copy.param, whole.param));
  multiplicative_update({.tensors = {&nearest, 1}, .step = 3});
  EXPECT_FALSE(same_bytes(nearest.param, whole.param));
}

TEST(MultiplicativeUpdate, RejectsBadArguments) {
  MultiplicativeUpdateTensor t{.param = Tensor::zeros({4}, DType::f32), .relative = Tensor::zeros({5}, DType::f32)};
  EXPECT_THROW(multiplicative_update({.tensors = {&t, 1}}), Error);
  t.relative = Tensor::zeros({4}, DType::bf16);
  EXPECT_THROW(multiplicative_update({.tensors = {&t, 1}}), Error);
  t.relative = Tensor::zeros({4}, DType::f32);
  EXPECT_THROW(multiplicative_update({.tensors = {&t, 1}, .step = 0}), Error);
  t.master = Tensor::zeros({4}, DType::f32);
  EXPECT_THROW(multiplicative_update({.tensors = {&t, 1}}), Error) << "a master of f32";
}

}  // namespace
}  // namespace quench::testing
