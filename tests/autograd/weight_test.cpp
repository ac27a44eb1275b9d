#include "autograd/weight.h"

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "autograd/recompute.h"
#include "tests/autograd/borrowed_weight.h"
#include "tests/autograd/operands.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::borrowed;
using testing::BorrowedValues;
using testing::floats;

Variable leaf(const Shape& shape, std::uint64_t stream) {
  return Variable::leaf(testing::randn(shape, stream));
}

// Every function that takes a weight, in one small network.
struct WeighedNet {
  static constexpr QkvLayout kHeads{.heads = 2, .kv_heads = 1, .head_dim = 2};

  Variable table = leaf({9, 8}, 1), first_norm = leaf({8}, 2), norm = leaf({8}, 3), q_norm = leaf({2}, 4),
           k_norm = leaf({2}, 5), qkv = leaf({8, 8}, 6), qkv_bias = leaf({8}, 7), out = leaf({8, 4}, 8),
           head = leaf({9, 8}, 9);
  Tensor ids = Tensor::from_values<std::int32_t>({4}, std::vector<std::int32_t>{1, 8, 0, 1});
  Tensor labels = Tensor::from_values<std::int32_t>({4}, std::vector<std::int32_t>{8, -100, 1, 3});

  [[nodiscard]] std::vector<Variable> leaves() const {
    return {table, first_norm, norm, q_norm, k_norm, qkv, qkv_bias, out, head};
  }

  // Loss and every gradient; `weight` makes what the functions see of a leaf.
  template <class MakeWeight>
  std::vector<std::vector<float>> run(Recompute mode, const MakeWeight& weight) const {
    for (const Variable& variable : leaves()) variable.gradient()->reset();
    const Weight w_norm = weight(norm), w_first = weight(first_norm), w_q = weight(q_norm), w_k = weight(k_norm),
                 w_qkv = weight(qkv), w_bias = weight(qkv_bias), w_out = weight(out);
    const auto block = [&](const std::vector<Variable>& in) {
      const Variable fused = qk_norm(linear(rms_norm(in[0], w_first, 1e-5f), w_qkv, w_bias), w_q, w_k, kHeads, 1e-5f);
      const Variable mixed = attention(fused, kHeads, {{0, 4, 0, 4}}, 0.7f);
      const auto [sum, normed] = add_rms_norm(in[0], linear(mixed, w_out), w_norm, 1e-5f);
      return std::vector<Variable>{add(sum, normed)};
    };
    Tape tape(mode);
    Variable loss;
    {
      const TapeScope scope(tape);
      const Variable x = embedding(weight(table), ids);
      const Variable h = mode == Recompute::full ? recompute(block, {x})[0] : block({x})[0];
      loss = lm_head_loss(h, weight(head), labels, 1.0f / 3);
    }
    tape.backward(loss);
    std::vector<std::vector<float>> all{floats(loss.value())};
    for (const Variable& variable : leaves()) all.push_back(floats(variable.grad()));
    return all;
  }
};

TEST(Weight, NoFunctionKeepsTheBytesOfAWeight) {
  const WeighedNet net;
  for (const Recompute mode : {Recompute::none, Recompute::selective, Recompute::full}) {
    const auto plain = net.run(mode, [](const Variable& v) { return Weight(v); });
    EXPECT_EQ(net.run(mode, [](const Variable& v) { return borrowed(v); }), plain) << static_cast<int>(mode);
  }
}

TEST(Weight, BackwardAsksAgain) {
  const Variable w = leaf({3, 4}, 1), x = leaf({2, 4}, 2);
  const auto source = std::make_shared<BorrowedValues>(w.value());
  const Weight weight(w.value().shape(), DType::f32, Device{}, source, nullptr);  // frozen
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    y = linear(x, weight);
  }
  EXPECT_EQ(source->requests(), 1);
  y.gradient()->target().tensor.zero();
  tape.backward();
  EXPECT_EQ(source->requests(), 2);
  EXPECT_TRUE(x.gradient()->has_value());
}

TEST(Weight, UndefinedGivesUndefinedValues) {
  const Weight none, of_nothing{Variable()};
  EXPECT_FALSE(none.defined());
  EXPECT_FALSE(of_nothing.defined());
  EXPECT_FALSE(none.acquire().value().defined());
  EXPECT_FALSE(none.requires_grad());
  EXPECT_EQ(none.describe(), "undefined");
  EXPECT_EQ(Weight(leaf({3, 4}, 1)).describe(), "f32[3, 4] on cpu");
}

TEST(Weight, AUseEndsWithAnException) {
  const auto source = std::make_shared<BorrowedValues>(leaf({2}, 1).value());
  const Weight weight({2}, DType::f32, Device{}, source, nullptr);
  EXPECT_THROW(
      {
        const Weight::Acquired outer = weight.acquire();
        const Weight::Acquired inner = weight.acquire();
        throw Error(ErrorCode::failed, "between");
      },
      Error);
  EXPECT_EQ(source->requests(), 2);
}

}  // namespace
}  // namespace quench::autograd
