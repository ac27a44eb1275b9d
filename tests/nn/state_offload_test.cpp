#include "nn/optim/state_offload.h"

#include <gtest/gtest.h>

#include <span>

#include "core/memory/allocator.h"
#include "tests/testing.h"

namespace quench::nn {
namespace {

constexpr Device kPlanning{DeviceType::meta, 0};
constexpr std::int64_t kLayers = 4;

// Eight tensors of 100 numbers, each different.
struct State {
  explicit State(Device device) {
    for (int i = 0; i < 8; ++i) {
      Tensor tensor = Tensor::empty({100}, DType::f32, device);
      if (!device.is_meta()) std::fill_n(tensor.data<float>(), 100, static_cast<float>(i));
      tensors.push_back(tensor);
    }
    // Four parameters of two tensors, with a gradient as large as one of them.
    for (std::size_t i = 0; i < tensors.size(); i += 2) parameters.push_back({{&tensors[i], &tensors[i + 1]}, 400});
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
  return Allocator::of(kPlanning).stats().current;
}

TEST(StateOffloader, ValuesComeBack) {
  State state{Device{}};
  StateOffloader offloader(state.parameters, 0.5, 0, Device{}, kLayers);
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
TEST(StateOffloader, OneMicroBatchGivesTheMemoryBackByTheEndOfTheForwardPass) {
  State state{kPlanning};
  StateOffloader offloader(state.parameters, 1.0, 0, kPlanning, kLayers);
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

TEST(StateOffloader, SeveralMicroBatchesLeaveItAwayUntilTheLast) {
  State state{kPlanning};
  StateOffloader offloader(state.parameters, 1.0, 0, kPlanning, kLayers);
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
  State state{kPlanning};
  EXPECT_EQ(StateOffloader(state.parameters, 0.0, 0, kPlanning, kLayers).bytes(), 0);
  EXPECT_EQ(StateOffloader(state.parameters, 1.0, 0, kPlanning, kLayers).bytes(), 3200);
  EXPECT_EQ(StateOffloader(state.parameters, 0.26, 0, kPlanning, kLayers).bytes(), 1200) << "the last one goes whole";
}

TEST(StateOffloader, AnExceptionBringsItBack) {
  State state{Device{}};
  StateOffloader offloader(state.parameters, 1.0, 0, Device{}, kLayers);
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

// A step's passes with a gradient for every parameter, up to where the update begins.
void run_step(StateOffloader& offloader, std::vector<Tensor>& gradients, Device device) {
  StateOffloader::Step running(&offloader);
  run_micro_batch(running.hooks(true, true));
  for (Tensor& gradient : gradients) gradient = Tensor::empty({100}, DType::f32, device);
  running.end();
}

// The last parameters, whole, of what travels; of three tensors that is the second parameter with its one tensor.
TEST(StateOffloader, LateStateIsThatOfTheLastParametersThatTravel) {
  State state{kPlanning};
  const auto late = [&](double ratio, double late_ratio) {
    return StateOffloader(state.parameters, ratio, late_ratio, kPlanning, kLayers).late_bytes();
  };
  EXPECT_EQ(late(1, 0), 0);
  EXPECT_EQ(late(1, 0.01), 800);
  EXPECT_EQ(late(1, 0.25), 800);
  EXPECT_EQ(late(1, 0.26), 1600);
  EXPECT_EQ(late(1, 1), 3200);
  EXPECT_EQ(late(0.26, 0.3), 400);
  EXPECT_EQ(late(0.26, 0.4), 1200);
  EXPECT_EQ(late(0, 1), 0);
}

TEST(StateOffloader, LateStateReturnsDuringTheUpdate) {
  State state{Device{}};
  StateOffloader offloader(state.parameters, 0.75, 0.5, Device{}, kLayers);
  EXPECT_EQ(offloader.late_bytes(), 1600);
  std::vector<Tensor> gradients(4);
  for (int step = 0; step < 3; ++step) {
    run_step(offloader, gradients, Device{});
    EXPECT_EQ(state.here(), (std::vector<bool>{true, true, false, false, false, false, true, true}));
    std::vector<std::size_t> updated;
    offloader.update([&](ParameterRange part) {
      for (std::size_t i = part.begin; i < part.end; ++i) {
        updated.push_back(i);
        for (const Tensor* tensor : state.parameters[i].tensors) {
          ASSERT_TRUE(tensor->defined()) << i;
          for (auto& value : std::span(tensor->data<float>(), 100)) value += 1;
        }
      }
    });
    EXPECT_EQ(updated, (std::vector<std::size_t>{3, 0, 1, 2})) << "from the one behind the late ones around";
    for (std::size_t i = 0; i < state.tensors.size(); ++i) {
      ASSERT_TRUE(state.tensors[i].defined()) << i;
      for (const float value : std::span(state.tensors[i].data<float>(), 100))
        ASSERT_EQ(value, static_cast<float>(i) + static_cast<float>(step + 1)) << i;
    }
  }
}

// Memory does not rise above what the last gradient finds as long as gradients have room to leave.
TEST(StateOffloader, LateStateReturnsIntoTheRoomOfGradients) {
  State state{kPlanning};
  const std::int64_t before = planned_bytes(), each = before / 8;
  std::vector<Tensor> gradients(4);
  for (const double ratio : {0.5, 0.75, 1.0}) {
    StateOffloader offloader(state.parameters, ratio, 0.25 / ratio, kPlanning, kLayers);
    ASSERT_EQ(offloader.late_bytes(), 800);
    run_step(offloader, gradients, kPlanning);
    EXPECT_EQ(planned_bytes(), before + 2 * each) << "four gradients, and two tensors are away";
    Allocator::of(kPlanning).reset_peak();
    std::size_t updated = 0;
    offloader.update([&](ParameterRange part) {
      for (std::size_t i = part.begin; i < part.end; ++i, ++updated) gradients[i] = Tensor();
    });
    EXPECT_EQ(updated, 4u);
    EXPECT_EQ(Allocator::of(kPlanning).stats().peak, before + 2 * each);
    EXPECT_EQ(planned_bytes(), before);
    EXPECT_EQ(state.here(), std::vector<bool>(8, true));
  }
}

// All is late: each parameter's state must come before its gradient can go, and no sooner.
TEST(StateOffloader, LateStateComesWithoutRoomWhereItMust) {
  State state{kPlanning};
  const std::int64_t before = planned_bytes(), each = before / 8;
  std::vector<Tensor> gradients(4);
  StateOffloader offloader(state.parameters, 1, 1, kPlanning, kLayers);
  run_step(offloader, gradients, kPlanning);
  EXPECT_EQ(planned_bytes(), 4 * each);
  std::vector<std::int64_t> bytes;
  offloader.update([&](ParameterRange part) {
    ASSERT_EQ(part.end, part.begin + 1);
    bytes.push_back(planned_bytes() / each);
    gradients[part.begin] = Tensor();
  });
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{6, 7, 8, 9}));
  EXPECT_EQ(planned_bytes(), before);
}

TEST(StateOffloader, LateStateComesBackWithoutAnUpdate) {
  State state{Device{}};
  std::vector<Tensor> gradients(4);
  const std::vector<bool> all(8, true), late{true, true, true, true, true, true, false, false};
  const auto expect_all = [&] {
    ASSERT_EQ(state.here(), all);
    EXPECT_EQ(state.tensors[7].data<float>()[99], 7.0f);
  };
  {
    StateOffloader offloader(state.parameters, 1, 0.25, Device{}, kLayers);
    run_step(offloader, gradients, Device{});
    ASSERT_EQ(state.here(), late);
    offloader.bring_back();
    expect_all();
    offloader.bring_back();
    expect_all();

    run_step(offloader, gradients, Device{});
    run_step(offloader, gradients, Device{});  // the step again, without a decision on the first
    ASSERT_EQ(state.here(), late);
    std::size_t parts = 0;
    EXPECT_THROW(offloader.update([&](ParameterRange) {
      if (++parts == 2) throw Error(ErrorCode::failed, "in the middle");
    }),
                 Error);
    expect_all();

    { const StateOffloader::Step empty(&offloader); }  // no valid token: no passes, but an update
    offloader.update([&](ParameterRange part) { EXPECT_EQ(part, (ParameterRange{0, 4})); });
    expect_all();

    run_step(offloader, gradients, Device{});
    ASSERT_EQ(state.here(), late);
  }
  expect_all();
}

TEST(StateOffloader, StepsWithoutAnythingToDo) {
  StateOffloader::Step none(nullptr);
  EXPECT_EQ(none.hooks(true, true), nullptr);
  none.end();
  State state{Device{}};
  StateOffloader offloader(state.parameters, 1.0, 0, Device{}, kLayers);
  StateOffloader::Step empty(&offloader);  // a step without valid tokens runs no micro-batch
  empty.end();
  EXPECT_EQ(state.here(), std::vector<bool>(8, true));
}

}  // namespace
}  // namespace quench::nn
