// Requests for another value in place of a result: kinds known to one producer, to another, and to none.

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "autograd/functions_moe.h"
#include "autograd/mx_substitution.h"
#include "autograd/swiglu.h"
#include "core/ops/elementwise.h"
#include "tests/autograd/operands.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::randn;
using testing::same_bits;

Tensor floats(const Shape& shape, const std::vector<float>& values) {
  return Tensor::from_values<float>(shape, values);
}

struct Truncated final : ValueSubstitution {};  // a kind that autograd/ does not know

// x, truncated to integers on request.
Variable truncating(const Variable& x, const QuantOutputRequest& request) {
  const auto truncated = request.substitution_as<Truncated>();
  const Tensor out = x.value().clone();
  if (truncated)
    for (std::int64_t i = 0; i < out.numel(); ++i) out.data<float>()[i] = std::trunc(out.data<float>()[i]);
  return Variable(FusedValue::substituted(out, truncated));
}

// SwiGLU of 2 * width columns.
Variable experts(std::int64_t width, const QuantOutputRequest& request) {
  const std::vector<std::int32_t> chosen{0, 1, 0, 1};
  const TokenPermutation rows = sort_tokens(Tensor::from_values<std::int32_t>({4, 1}, chosen), 2, 1);
  const Variable gate_up(randn({rows.pairs.size(0), 2 * width}, 2));
  return expert_swiglu(gate_up, Variable(floats({4, 1}, {1, 1, 1, 1})), rows, false, request);
}

TEST(ValueSubstitution, IsAnsweredByTheRequestItself) {
  const QuantOutputRequest request{.substitution = std::make_shared<Truncated>()};
  EXPECT_FALSE(request.wanted()) << "no quantization outputs";
  const Variable x(floats({1, 3}, {1.5f, -2.25f, 3.0f}));
  const Variable asked = truncating(x, request);
  EXPECT_EQ(asked.fused().form(), ValueForm::substituted);
  EXPECT_TRUE(same_bits(asked.fused().answer_to(request.substitution), floats({1, 3}, {1.0f, -2.0f, 3.0f})));
  EXPECT_EQ(truncating(x, {}).fused().form(), ValueForm::stored);
}

// For everyone else there is no value: not the other one in its place.
TEST(ValueSubstitution, OtherReadersAreRefused) {
  const QuantOutputRequest request{.substitution = std::make_shared<Truncated>()};
  const Variable asked = truncating(Variable(floats({1, 3}, {1.5f, -2.25f, 3.0f})), request);
  EXPECT_FALSE(asked.fused().answer_to(std::make_shared<Truncated>()).defined());
  EXPECT_FALSE(asked.fused().answer_to(nullptr).defined());
  EXPECT_THROW((void)asked.value(), Error);
  EXPECT_THROW((void)asked.fused().operand(), Error);
  EXPECT_THROW((void)asked.detach(), Error);
  EXPECT_THROW(Saved{asked}, Error);
}

TEST(ValueSubstitution, UnknownKindIsIgnored) {
  const QuantOutputRequest mx{.substitution = std::make_shared<MxSubstitution>(MxScaleMode::rceil)};
  const Variable x(randn({2, 3}, 1));
  EXPECT_TRUE(same_bits(truncating(x, mx).value(), x.value()));

  const Variable plain = experts(32, {});
  const Variable unknown = experts(32, {.substitution = std::make_shared<Truncated>()});
  EXPECT_TRUE(same_bits(unknown.value(), plain.value()));
  const Variable rounded = experts(32, mx);
  EXPECT_FALSE(same_bits(rounded.fused().answer_to(mx.substitution), plain.value()));
  EXPECT_EQ(experts(24, mx).fused().form(), ValueForm::stored) << "24 columns are no whole blocks";
}

}  // namespace
}  // namespace quench::autograd
