#include "autograd/offload.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace quench::autograd
