#include "autograd/functions_mla.h"

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "autograd/gradcheck.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::Generator;

TEST(MlaFunctions, GradientsOfColumns) {
  Generator random(3);
  const GradcheckResult result = gradcheck(
      [](const std::vector<Variable>& in) {
        const auto [first, second] = split_columns(in[0], 5);
        return add(head_columns(first, 1, 3), second);
      },
      {random.normal({4, 8}, DType::f32)}, {.step = 1e-2});
  EXPECT_TRUE(result.ok) << result.failure;
}

// An unused part has no gradient.
TEST(MlaFunctions, UnusedColumnsGetZeros) {
  Generator random(3);
  const Variable x = Variable::leaf(random.normal({2, 6}, DType::f32));
  Tape tape;
  {
    const TapeScope scope(tape);
    const Variable used = split_columns(x, 2).second;
    const Tensor ones = Tensor::empty({2, 4}, DType::f32);
    testing::fill(ones, 1.0);
    used.gradient()->contribute(ones);
  }
  tape.backward();
  EXPECT_EQ(testing::values(x.grad()), (std::vector<double>{0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1}));
}

TEST(MlaFunctions, GradientsOfHeads) {
  for (const bool interleaved : {true, false}) {
    const MlaHeadsShape s{.heads = 2, .plain = 3, .rotary = 4, .value = 5, .interleaved = interleaved};
    Generator random(7);
    const Tensor cos = random.normal({6, 2}, DType::f32), sin = random.normal({6, 2}, DType::f32);
    const Tensor positions = random.integers(4, 6);
    const GradcheckResult result = gradcheck(
        [&](const std::vector<Variable>& in) { return mla_heads(in[0], in[1], in[2], s, cos, sin, positions); },
        {random.normal({4, s.heads * s.width()}, DType::f32),
         random.normal({4, s.heads * (s.plain + s.value)}, DType::f32), random.normal({4, s.rotary}, DType::f32)},
        {.step = 1e-2});
    EXPECT_TRUE(result.ok) << result.failure;
  }
}

}  // namespace
}  // namespace quench::autograd
