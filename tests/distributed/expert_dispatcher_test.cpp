// Gradients that the all-to-all of weighted rows sends back.

#include <gtest/gtest.h>

#include "distributed/experts/expert_parallel_dispatcher.h"
#include "tests/core/ops/op_testing.h"

namespace quench::distributed {
namespace {

using autograd::Variable;
using testing::Generator;

constexpr std::int64_t kMovedRows = 5, kMovedWidth = 32;

// All-to-alls of a forward and a backward pass in a group of one rank.
struct Moved {
  std::int64_t forward = 0, backward = 0;
};

Moved move_weighted_rows(const Variable& x, const Variable& weights, bool mxfp8) {
  const std::shared_ptr<ProcessGroup> group = single_group("experts", Device{});
  const ExpertParallelDispatcher dispatcher(group, mxfp8, std::make_shared<ExposedCommTimer>(Device{}));
  const auto calls = [&] { return group->traffic()[static_cast<std::size_t>(CollectiveKind::all_to_all)].calls; };
  Moved moved;
  autograd::Tape tape;
  {
    const autograd::TapeScope scope(tape);
    const auto [rows, values] = autograd::all_to_all_weighted_rows(
        x, weights, dispatcher, {.sent = {kMovedRows}, .received = {kMovedRows}}, "dispatch");
    EXPECT_EQ(rows.requires_grad(), x.requires_grad());
    EXPECT_EQ(values.requires_grad(), weights.requires_grad());
    if (rows.requires_grad()) rows.gradient()->contribute(rows.value());
    if (values.requires_grad()) values.gradient()->contribute(values.value());
  }
  moved.forward = calls();
  tape.backward();
  moved.backward = calls() - moved.forward;
  return moved;
}

class DispatchGradients : public ::testing::Test {
 protected:
  const Tensor rows = Generator(3).normal({kMovedRows, kMovedWidth}, DType::f32),
               values = Generator(4).normal({kMovedRows, 1}, DType::f32);
};

TEST_F(DispatchGradients, OfRowsAndWeights) {
  const Variable x = Variable::leaf(rows), weights = Variable::leaf(values);
  const Moved moved = move_weighted_rows(x, weights, false);
  EXPECT_EQ(moved.forward, 2);
  EXPECT_EQ(moved.backward, 2);
  EXPECT_TRUE(testing::same_bits(x.grad(), rows));
  EXPECT_TRUE(testing::same_bits(weights.grad(), values));
}

// Unrounded also where rows are sent as MXFP8.
TEST_F(DispatchGradients, OfWeightsAlone) {
  for (const bool mxfp8 : {false, true}) {
    const Variable weights = Variable::leaf(values);
    EXPECT_EQ(move_weighted_rows(Variable(rows), weights, mxfp8).backward, 1) << mxfp8;
    EXPECT_TRUE(testing::same_bits(weights.grad(), values)) << mxfp8;
  }
}

TEST_F(DispatchGradients, OfRowsAlone) {
  const Variable x = Variable::leaf(rows);
  EXPECT_EQ(move_weighted_rows(x, Variable(values), false).backward, 1);
  EXPECT_TRUE(testing::same_bits(x.grad(), rows));
}

TEST_F(DispatchGradients, OfNothing) {
  EXPECT_EQ(move_weighted_rows(Variable(rows), Variable(values), false).backward, 0);
}

// A consumer that leaves out one of the two gradients is named.
TEST_F(DispatchGradients, AMissingOneIsRefused) {
  const std::shared_ptr<ProcessGroup> group = single_group("experts", Device{});
  const ExpertParallelDispatcher dispatcher(group, false, std::make_shared<ExposedCommTimer>(Device{}));
  autograd::Tape tape;
  {
    const autograd::TapeScope scope(tape);
    const auto moved = autograd::all_to_all_weighted_rows(Variable::leaf(rows), Variable::leaf(values), dispatcher,
                                                          {.sent = {kMovedRows}, .received = {kMovedRows}}, "dispatch");
    moved.second.gradient()->contribute(values);
  }
  EXPECT_THROW(tape.backward(), Error);
}

}  // namespace
}  // namespace quench::distributed
