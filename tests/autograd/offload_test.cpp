#include "autograd/offload.h"

#include <gtest/gtest.h>

#include "autograd/functions.h"
#include "autograd/recompute.h"
#include "core/memory/allocator.h"
#include "tests/autograd/operands.h"
#include "tests/core/ops/op_testing.h"

namespace quench::autograd {
namespace {

constexpr Device kMeta{DeviceType::meta, 0};

// On the meta device: at most two tensors wait on their way out, and each is there again when it is asked for.
TEST(ActivationOffloader, GivesDeviceMemoryBackAndTakesItAgain) {
  constexpr std::int64_t kLayers = 6;
  ActivationOffloader offloader(kMeta, ActivationPolicy(kLayers, kLayers, 0));
  std::vector<std::shared_ptr<OffloadedTensor>> sent;
  std::vector<std::weak_ptr<Storage>> first_copies;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    offloader.begin_forward(layer);
    ASSERT_TRUE(offloader.wanted());
    const Tensor tensor = Tensor::empty({1000 + layer}, DType::bf16, kMeta);
    first_copies.push_back(tensor.storage());
    sent.push_back(offloader.send(tensor));
  }
  for (std::int64_t layer = 0; layer < kLayers; ++layer)
    EXPECT_EQ(first_copies[static_cast<std::size_t>(layer)].expired(), layer + 2 < kLayers) << layer;
  offloader.end_forward();
  for (const auto& copy : first_copies) EXPECT_TRUE(copy.expired());
  EXPECT_FALSE(offloader.wanted());
  for (std::int64_t layer = kLayers - 1; layer >= 0; --layer) {
    offloader.begin_backward(layer);
    EXPECT_EQ(offloader.get(*sent[static_cast<std::size_t>(layer)]).shape(), Shape({1000 + layer}));
  }
}

// Memory of a sent tensor is free five layers later, also if no other one follows.
TEST(ActivationOffloader, FreesDeviceMemoryWithoutAnotherTensor) {
  constexpr std::int64_t kLayers = 8;
  ActivationOffloader offloader(kMeta, ActivationPolicy(kLayers, 2, 0));
  std::vector<std::shared_ptr<OffloadedTensor>> sent;
  std::vector<std::weak_ptr<Storage>> copies(kLayers);
  for (int pass = 0; pass < 2; ++pass) {
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      offloader.begin_forward(layer);
      for (std::int64_t sender = 0; sender + 5 <= layer; ++sender)
        EXPECT_TRUE(copies[static_cast<std::size_t>(sender)].expired()) << sender << " at " << layer;
      if (!offloader.wanted()) continue;
      const Tensor tensor = Tensor::empty({1000}, DType::bf16, kMeta);
      copies[static_cast<std::size_t>(layer)] = tensor.storage();
      sent.push_back(offloader.send(tensor));
    }
    EXPECT_EQ(sent.size(), 2u);
    offloader.end_forward();
    sent.clear();
  }
}

// Later passes copy into the memory of earlier ones, also of another shape; tensors of two live passes have two.
TEST(ActivationOffloader, ReusesHostMemory) {
  constexpr std::int64_t kLayers = 3;
  ActivationOffloader offloader(Device{}, ActivationPolicy(kLayers, kLayers, 0));
  const auto pass = [&](std::int64_t elements) {
    std::vector<std::shared_ptr<OffloadedTensor>> sent;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      offloader.begin_forward(layer);
      sent.push_back(offloader.send(Tensor::zeros({elements}, DType::f32)));
    }
    offloader.end_forward();
    return sent;
  };
  const void* first = nullptr;
  {
    const auto sent = pass(100);
    first = sent.front()->host().raw_data();
    EXPECT_EQ(offloader.host_bytes(), kLayers * 400);
  }
  {
    const auto sent = pass(100);
    EXPECT_EQ(sent.front()->host().raw_data(), first);
    const auto other = pass(100);
    EXPECT_NE(other.front()->host().raw_data(), first);
    EXPECT_EQ(offloader.host_bytes(), 2 * kLayers * 400);
  }
  const auto longer = pass(200);
  EXPECT_EQ(longer.front()->host().shape(), Shape({200}));
}

// The inputs of recomputed layers leave and come back, in the order of the backward pass; gradients keep their bits.
TEST(ActivationOffloader, KeepsInputsOfRecomputedLayers) {
  constexpr std::int64_t kLayers = 5;
  const auto gradients = [&](std::int64_t offloaded) {
    const Tensor w = testing::randn({8, 8}, 1);
    const Variable weight = Variable::leaf(w), head = Variable::leaf(testing::randn({5, 8}, 3));
    const Tensor labels = Tensor::from_values<std::int32_t>({4}, std::vector<std::int32_t>{0, 3, -100, 2});
    ActivationOffloader offloader(Device{}, ActivationPolicy(kLayers, offloaded, 0));
    std::vector<std::vector<float>> all;
    for (int pass = 0; pass < 2; ++pass) {
      weight.gradient()->reset();
      head.gradient()->reset();
      Tape tape;
      tape.set_offloader(&offloader);
      Variable loss;
      std::vector<std::int64_t> order;
      {
        const TapeScope scope(tape);
        Variable h = Variable::leaf(testing::randn({4, 8}, 5));
        for (std::int64_t layer = 0; layer < kLayers; ++layer) {
          offloader.begin_forward(layer);
          bool again = false;
          h = recompute(
                  [&, layer, again](const std::vector<Variable>& in) mutable {
                    if (std::exchange(again, true)) order.push_back(layer);
                    return std::vector{add(in[0], linear(in[0], weight))};
                  },
                  {h})
                  .front();
          Tape::mark([&offloader, layer] { offloader.begin_backward(layer); });
        }
        offloader.end_forward();
        EXPECT_EQ(offloader.host_bytes(), offloaded * 4 * 8 * 4);
        loss = lm_head_loss(h, head, labels, 1.0f / 3);
      }
      tape.backward(loss);
      EXPECT_EQ(order, (std::vector<std::int64_t>{4, 3, 2, 1, 0}));
      all.push_back(testing::floats(weight.grad()));
      all.push_back(testing::floats(loss.value()));
    }
    return all;
  };
  const auto resident = gradients(0);
  for (const std::int64_t offloaded : {1, 3, 5}) EXPECT_EQ(gradients(offloaded), resident) << offloaded;
}

// On the meta device: of the saved inputs, those of at most two layers are on the device at a time.
TEST(ActivationOffloader, FreesInputsOfRecomputedLayers) {
  constexpr std::int64_t kLayers = 12, kRows = 1 << 16;
  const auto held = [&](std::int64_t offloaded) {
    const Variable weight = Variable::leaf(Tensor::empty({8, 8}, DType::f32, kMeta));
    ActivationOffloader offloader(kMeta, ActivationPolicy(kLayers, offloaded, 0));
    Tape tape;
    tape.set_offloader(&offloader);
    const TapeScope scope(tape);
    Variable h = Variable::leaf(Tensor::empty({kRows, 8}, DType::f32, kMeta));
    const std::int64_t before = Allocator::of(kMeta).stats().current;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      offloader.begin_forward(layer);
      h = recompute([&](const std::vector<Variable>& in) { return std::vector{linear(in[0], weight)}; }, {h}).front();
    }
    offloader.end_forward();
    return Allocator::of(kMeta).stats().current - before;
  };
  constexpr std::int64_t kBytes = kRows * 8 * 4;
  EXPECT_GE(held(0), kLayers * kBytes);
  EXPECT_LE(held(kLayers), 2 * kBytes);
}

}  // namespace
}  // namespace quench::autograd
