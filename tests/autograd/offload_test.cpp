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

}  // namespace
}  // namespace quench::autograd
