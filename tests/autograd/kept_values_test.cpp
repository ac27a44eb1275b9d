#include "autograd/regions/kept_values.h"

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "autograd/recompute.h"
#include "core/memory/allocator.h"
#include "tests/autograd/operands.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

using testing::floats;
using testing::randn;

constexpr QkvLayout kKeptLayout{.heads = 4, .kv_heads = 2, .head_dim = 8};
constexpr std::int64_t kKeptTokens = 24;

// Attention after a linear layer, in two layers.
struct AttentionNet {
  Variable weight = Variable::leaf(randn({kKeptLayout.width(), 32}, 1));

  [[nodiscard]] Variable layer(const Variable& x) const {
    return add(x, attention(linear(x, weight), kKeptLayout, {{0, 10, 0, 10}, {10, 14, 10, 14}}, 0.3f));
  }
  // Value, and gradients of x and of the weight.
  [[nodiscard]] std::vector<std::vector<float>> run(const std::optional<RecomputeOptions>& options,
                                                    ActivationOffloader* offloader = nullptr) const {
    weight.gradient()->reset();
    const Variable x = Variable::leaf(randn({kKeptTokens, 32}, 2));
    Tape tape;
    tape.set_offloader(offloader);
    Variable h = x;
    {
      const TapeScope scope(tape);
      for (std::int64_t i = 0; i < 2; ++i) {
        if (offloader != nullptr) offloader->begin_forward(i);
        h = options ? recompute([this](const std::vector<Variable>& in) { return std::vector{layer(in[0])}; }, {h},
                                *options)
                          .front()
                    : layer(h);
        if (offloader != nullptr) Tape::mark([offloader, i] { offloader->begin_backward(i); });
      }
      if (offloader != nullptr) offloader->end_forward();
    }
    h.gradient()->contribute(h.value().clone());
    tape.backward();
    return {floats(h.value()), floats(x.grad()), floats(weight.grad())};
  }
};

TEST(KeptValues, ChangeNoBitOfALayerWithAttention) {
  const AttentionNet net;
  const auto whole = net.run({});
  EXPECT_EQ(net.run(RecomputeOptions{}), whole);
  EXPECT_EQ(net.run(RecomputeOptions{.keeps_attention = true}), whole);
  ActivationOffloader offloader(Device{}, ActivationPolicy(2, 2, 0));
  for (int pass = 0; pass < 2; ++pass)
    EXPECT_EQ(net.run(RecomputeOptions{.keeps_attention = true}, &offloader), whole) << "in host memory";
  // Each layer: its input, attention's output, and a sum of each head and token.
  EXPECT_EQ(offloader.host_bytes(), 2 * 4 * (kKeptTokens * 32 + kKeptTokens * 32 + kKeptTokens * 4));
}

// The second run gets the tensors of the first, call by call.
TEST(KeptValues, AreThoseOfTheSameCall) {
  std::vector<std::pair<bool, const void*>> calls;
  const auto region = [&](const std::vector<Variable>& in) {
    for (int call = 0; call < 2; ++call) {
      KeptValues* kept = KeptValues::current();
      EXPECT_NE(kept, nullptr);
      if (kept->replays()) {
        calls.emplace_back(true, kept->take().first.raw_data());
      } else {
        const Tensor made = Tensor::zeros({3}, DType::f32);
        kept->keep(made, made);
        calls.emplace_back(false, made.raw_data());
      }
    }
    return std::vector{scale(in[0], 2.0f)};
  };
  const Variable x = Variable::leaf(randn({4}, 1));
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    y = recompute(region, {x}, {.keeps_attention = true}).front();
    EXPECT_EQ(KeptValues::current(), nullptr);
  }
  y.gradient()->contribute(y.value().clone());
  tape.backward();
  ASSERT_EQ(calls.size(), 4u);
  for (std::size_t call = 0; call < 2; ++call) {
    EXPECT_FALSE(calls[call].first);
    EXPECT_TRUE(calls[call + 2].first);
    EXPECT_EQ(calls[call].second, calls[call + 2].second);
  }
}

// A region without them does not see those of the region around it.
TEST(KeptValues, BelongToOneRegion) {
  const Variable x = Variable::leaf(randn({4}, 1));
  const auto inner = [](const std::vector<Variable>& in) {
    EXPECT_EQ(KeptValues::current(), nullptr);
    return std::vector{scale(in[0], 2.0f)};
  };
  Tape tape;
  Variable y;
  {
    const TapeScope scope(tape);
    y = recompute(inner, {x}).front();
  }
  y.gradient()->contribute(y.value().clone());
  tape.backward();
}

TEST(KeptValues, RefuseACallThatTheFirstRunDidNotMake) {
  KeptValues kept(nullptr);
  const KeptValues::Scope scope(&kept, true);
  EXPECT_THROW((void)kept.take(), Error);
}

}  // namespace
}  // namespace quench::autograd
