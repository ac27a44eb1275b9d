#include "nn/optim/state_offload.h"

#include <gtest/gtest.h>

#include <span>

#include "core/memory/allocator.h"
#include "tests/testing.h"

namespace quench::nn {
namespace {

constexpr Device kMeta{DeviceType::meta, 0};
constexpr std::int64_t kLayers = 4;

// Eight tensors of 100 numbers, each different.
struct State {
  explicit State(Device device) {
    for (int i = 0; i < 8; ++i) {
      Tensor tensor = Tensor::empty({100}, DType::f32, device);
      if (!device.is_meta()) std::fill_n(tensor.data<float>(), 100, static_cast<float>(i));
      tensors.push_back(tensor);
    }
    // Four parameters of two tensors.
    for (std::size_t i = 0; i < tensors.size(); i += 2) parameters.push_back({{&tensors[i], &tensors[i + 1]}});
  }

  [[nodiscard]] std::vector<bool> here() const {
    std::vector<bool> result;
    for (const Tensor& tensor : tensors) result.push_back(tensor.defined());
    return result;
  }

  std::vector<Tensor> tensors;
  std::vector<ParameterState> parameters;
};

void run_micro_batch(
    const UnitHooks* hooks, const std::function<void()>& between = [] {}) {
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    if (hooks != nullptr && hooks->before_forward) hooks->before_forward(layer);
    if (hooks != nullptr && hooks->after_forward) hooks->after_forward(layer);
  }
  between();
  for (std::int64_t layer = kLayers - 1; layer >= 0; --layer)
    if (hooks != nullptr && hooks->before_backward) hooks->before_backward(layer);
}

std::int64_t planned_bytes() {
  return Allocator::of(kMeta).stats().current;
}

TEST(StateOffloader, ValuesComeBack) {
  State state{Device{}};
  StateOffloader offloader(state.parameters, 0.5, Device{}, kLayers);
  EXPECT_EQ(offloader.bytes(), 4 * 400);
  for (int step = 0; step < 3; ++step) {
    StateOffloader::Step running(&offloader);
    run_micro_batch(running.hooks(true, true), [&] {
      EXPECT_EQ(state.here(), (std::vector<bool>{false, false, false, false, true, true, true, true}));
    });
    running.end();
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      ASSERT_TRUE(state.tensors[i].defined()) << i;
      const auto* values = state.tensors[i].data<float>();
      EXPECT_TRUE(std::all_of(values, values + 100, [&](float v) { return v == static_cast<float>(i); })) << i;
    }
  }
}

// One micro-batch: all that goes has left before the head, and returns with the backward pass.
TEST(StateOffloader, StateLeavesTheDeviceDuringForward) {
  State state{kMeta};
  StateOffloader offloader(state.parameters, 1.0, kMeta, kLayers);
  const std::int64_t before = planned_bytes(), each = before / 8;
  StateOffloader::Step running(&offloader);
  const UnitHooks* hooks = running.hooks(true, true);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    hooks->before_forward(layer);
    EXPECT_EQ(planned_bytes(), before - 2 * layer * each) << layer;
    hooks->after_forward(layer);
  }
  EXPECT_EQ(planned_bytes(), 0);
  for (std::int64_t layer = kLayers - 1; layer >= 0; --layer) {
    hooks->before_backward(layer);
    EXPECT_EQ(planned_bytes(), 2 * (kLayers - layer) * each) << layer;
  }
  running.end();
  EXPECT_EQ(planned_bytes(), before);
  EXPECT_EQ(state.here(), std::vector<bool>(8, true));
}

TEST(StateOffloader, StateReturnsInTheLastMicroBatch) {
  State state{kMeta};
  StateOffloader offloader(state.parameters, 1.0, kMeta, kLayers);
  const std::int64_t before = planned_bytes();
  StateOffloader::Step running(&offloader);
  run_micro_batch(running.hooks(true, false), [&] { EXPECT_EQ(planned_bytes(), before / 2) << "half by the head"; });
  EXPECT_EQ(planned_bytes(), 0);
  run_micro_batch(running.hooks(false, false));
  EXPECT_EQ(planned_bytes(), 0);
  run_micro_batch(running.hooks(false, true), [&] { EXPECT_EQ(planned_bytes(), 0); });
  EXPECT_EQ(planned_bytes(), before);
  running.end();
  EXPECT_EQ(state.here(), std::vector<bool>(8, true));
}

TEST(StateOffloader, TakesTheShareOfTheBytes) {
  State state{kMeta};
  EXPECT_EQ(StateOffloader(state.parameters, 0.0, kMeta, kLayers).bytes(), 0);
  EXPECT_EQ(StateOffloader(state.parameters, 1.0, kMeta, kLayers).bytes(), 3200);
  EXPECT_EQ(StateOffloader(state.parameters, 0.26, kMeta, kLayers).bytes(), 1200) << "the last one goes whole";
}

TEST(StateOffloader, ExceptionRestoresTheState) {
  State state{Device{}};
  StateOffloader offloader(state.parameters, 1.0, Device{}, kLayers);
  for (const bool last : {true, false}) {
    try {
      StateOffloader::Step running(&offloader);
      run_micro_batch(running.hooks(true, last), [] { throw Error(ErrorCode::failed, "in the middle"); });
      ADD_FAILURE();
    } catch (const Error&) {
    }
    ASSERT_EQ(state.here(), std::vector<bool>(8, true));
    EXPECT_EQ(state.tensors[5].data<float>()[99], 5.0f);
  }
}

TEST(StateOffloader, StepsWithoutAnythingToDo) {
  StateOffloader::Step none(nullptr);
  EXPECT_EQ(none.hooks(true, true), nullptr);
  none.end();
  State state{Device{}};
  StateOffloader offloader(state.parameters, 1.0, Device{}, kLayers);
  StateOffloader::Step empty(&offloader);  // a step without valid tokens runs no micro-batch
  empty.end();
  EXPECT_EQ(state.here(), std::vector<bool>(8, true));
}

}  // namespace
}  // namespace quench::nn
