#include "nn/optim/state_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/memory/allocator.h"
#include "nn/optim/optimizer_options.h"
#include "nn/optim/table.h"
#include "tests/testing.h"

namespace quench::nn {
namespace {

constexpr Device kPlanning{DeviceType::meta, 0};
constexpr std::int64_t kBucket = std::int64_t{32} << 20;  // elements

struct StreamedParameters {
  StreamedParameters(const std::vector<Shape>& shapes, Device device) {
    for (const Shape& shape : shapes) {
      auto parameter = std::make_unique<Parameter>(
          make_parameter(shape, {.dtype = DType::bf16, .grad_dtype = DType::bf16, .device = device}));
      parameter->name = fmt::format("p{}", all.size());
      Tensor(parameter->variable.value()).zero();
      all.push_back(parameter.get());
      owned.push_back(std::move(parameter));
    }
  }
  std::vector<std::unique_ptr<Parameter>> owned;
  std::vector<Parameter*> all;
};

std::unique_ptr<Optimizer> make_adamw(const StreamedParameters& parameters, bool host_state) {
  return make_optimizer(find_optimizer("adamw"), parameters.all,
                        {.state_dtype = DType::bf16, .host_state = host_state});
}

// Ranges of an update.
std::vector<ParameterRange> ranges_of(StateStream& stream, ParameterRange part) {
  std::vector<ParameterRange> all;
  stream.update(part, [&](ParameterRange range) { all.push_back(range); });
  return all;
}

TEST(StateStream, BucketsCoverTheParameters) {
  const StreamedParameters parameters({{kBucket / 2, 1}, {kBucket / 2, 1}, {1, 8}, {3 * kBucket, 1}, {4}, {4}},
                                      kPlanning);
  const auto optimizer = make_adamw(parameters, true);
  StateStream stream(*optimizer, 1, kPlanning);
  using Ranges = std::vector<ParameterRange>;
  EXPECT_EQ(ranges_of(stream, {0, 6}), (Ranges{{0, 2}, {2, 4}, {4, 6}}));
  EXPECT_EQ(ranges_of(stream, {0, 1}), (Ranges{{0, 1}}));
  EXPECT_EQ(ranges_of(stream, {1, 6}), (Ranges{{1, 4}, {4, 6}}));
  EXPECT_EQ(ranges_of(stream, {6, 6}), Ranges{});
}

TEST(StateStream, TwoBucketsAreOnTheDevice) {
  const Allocator& plan = Allocator::of(kPlanning);
  const StreamedParameters parameters(std::vector<Shape>(5, Shape{kBucket, 1}), kPlanning);
  const std::int64_t before = plan.stats().current, bucket = 2 * 2 * kBucket;
  const auto optimizer = make_adamw(parameters, true);
  EXPECT_EQ(plan.stats().current, before) << "made in host memory";
  StateStream stream(*optimizer, 1, kPlanning);
  EXPECT_EQ(stream.bytes(), 5 * bucket);
  EXPECT_EQ(optimizer->state().size(), 10u);
  std::size_t steps = 0;
  stream.update({0, 5}, [&](ParameterRange range) {
    EXPECT_EQ(plan.stats().current - before, range.end < 5 ? 2 * bucket : bucket);
    ++steps;
  });
  EXPECT_EQ(steps, 5u);
  EXPECT_EQ(plan.stats().current, before);
  EXPECT_EQ(optimizer->state().size(), 10u);
}

// State that is made on the device, and state that is made in host memory.
TEST(StateStream, MovesTheRequestedShareToTheHost) {
  const Allocator& plan = Allocator::of(kPlanning);
  for (const bool host_state : {false, true}) {
    const StreamedParameters parameters(std::vector<Shape>(4, Shape{1 << 20, 1}), kPlanning);
    const std::int64_t before = plan.stats().current, tensor = 2 << 20;
    const auto optimizer = make_adamw(parameters, host_state);
    StateStream stream(*optimizer, 0.3, kPlanning);
    EXPECT_EQ(stream.bytes(), 3 * tensor) << "the last one goes whole";
    EXPECT_EQ(plan.stats().current - before, 5 * tensor);
  }
}

TEST(StateStream, UpdatesReadAndWriteTheHostTensors) {
  for (const bool host_state : {false, true}) {
    const StreamedParameters parameters(std::vector<Shape>(3, Shape{16, 2}), Device{});
    const auto optimizer = make_adamw(parameters, host_state);
    StateStream stream(*optimizer, 1, Device{});
    for (int step = 1; step <= 3; ++step)
      stream.update({0, 3}, [&](ParameterRange range) {
        for (const Optimizer::StateTensor& state : optimizer->state())
          EXPECT_EQ(static_cast<float>(state.tensor.data<bfloat16>()[7]), static_cast<float>(step - 1));
        EXPECT_EQ(range, (ParameterRange{0, 3}));
        for (const ParameterState& state : optimizer->parameter_states())
          for (const Tensor* tensor : state.tensors)
            std::fill_n(tensor->data<bfloat16>(), 32, bfloat16(static_cast<float>(step)));
      });
    stream.finish_copies();
    for (const Optimizer::StateTensor& state : optimizer->state())
      EXPECT_EQ(static_cast<float>(state.tensor.data<bfloat16>()[7]), 3.0f) << state.name;
  }
}

}  // namespace
}  // namespace quench::nn
