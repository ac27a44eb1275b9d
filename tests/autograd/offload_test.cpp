#include "autograd/offload.h"

#include <gtest/gtest.h>

namespace quench::autograd {
namespace {

constexpr Device kPlanning{DeviceType::meta, 0};

TEST(ActivationOffloader, SpreadsTheLayersAndLeavesTheLast) {
  for (const std::int64_t layers : {2, 7, 8, 32})
    for (std::int64_t offloaded = 1; offloaded < layers; ++offloaded) {
      const ActivationOffloader offloader(kPlanning, layers, offloaded);
      std::int64_t count = 0, longest_run = 0, run = 0;
      for (std::int64_t layer = 0; layer < layers; ++layer) {
        run = offloader.is_offloaded(layer) ? run + 1 : 0;
        count += offloader.is_offloaded(layer) ? 1 : 0;
        longest_run = std::max(longest_run, run);
      }
      EXPECT_EQ(count, offloaded) << layers;
      EXPECT_FALSE(offloader.is_offloaded(layers - 1)) << layers << ' ' << offloaded;
      if (2 * offloaded <= layers - 1) {
        EXPECT_EQ(longest_run, 1) << layers << ' ' << offloaded;
      }
    }
  EXPECT_TRUE(ActivationOffloader(kPlanning, 4, 9).is_offloaded(3)) << "all layers";
}

// On the planning device: at most two tensors wait on their way out, and each is there again when it is asked for.
TEST(ActivationOffloader, GivesDeviceMemoryBackAndTakesItAgain) {
  constexpr std::int64_t kLayers = 6;
  ActivationOffloader offloader(kPlanning, kLayers, kLayers);
  std::vector<std::shared_ptr<OffloadedTensor>> sent;
  std::vector<std::weak_ptr<Storage>> first_copies;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    offloader.begin_forward(layer);
    ASSERT_TRUE(offloader.wanted());
    const Tensor tensor = Tensor::empty({1000 + layer}, DType::bf16, kPlanning);
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
