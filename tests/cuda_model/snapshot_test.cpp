// Copies of a GPU's tensors for a checkpoint, taken while the next step runs.

#include "train/checkpoint/snapshot.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/memory/allocator.h"
#include "tests/cuda_model/gpu_runs.h"

namespace quench {
namespace {

using testing::kGpu;

constexpr std::int64_t kCount = std::int64_t{48} << 20;  // 192 MiB of f32: more than a block

Tensor filled(std::int64_t count, float value) {
  const Tensor host = Tensor::empty({count}, DType::f32);
  std::fill_n(host.data<float>(), count, value);
  return host.to(kGpu);
}

bool holds(const CheckpointTensor& copy, float value) {
  const float* data = copy.data.data<float>();
  return std::all_of(data, data + copy.data.numel(), [&](float x) { return x == value; });
}

TEST(CudaSnapshot, HoldsWhatTheTensorsHeldAtTheCall) {
  Snapshot snapshot;
  Tensor large = filled(kCount, 1);
  const Tensor small = filled(100, 2), empty = filled(0, 0);
  const std::vector<CheckpointTensor> tensors{
      CheckpointTensor::whole("small", small), CheckpointTensor::whole("large", large),
      CheckpointTensor::whole("empty", empty), CheckpointTensor::whole("again", small)};
  snapshot.reserve(tensors);
  std::int64_t capacity = 0;
  for (const float value : {3.0f, 4.0f}) {
    large.copy_from(filled(kCount, value));
    const auto copies = snapshot.take(tensors);
    snapshot.before_change();
    large.zero();
    snapshot.wait();
    ASSERT_EQ(copies.size(), 4u);
    EXPECT_TRUE(holds(copies[0], 2));
    EXPECT_TRUE(holds(copies[1], value));
    EXPECT_EQ(copies[2].data.numel(), 0);
    EXPECT_TRUE(holds(copies[3], 2));
    if (capacity == 0) capacity = snapshot.capacity();
    EXPECT_EQ(snapshot.capacity(), capacity);
    EXPECT_GE(capacity, snapshot_bytes(tensors));
  }
}

TEST(CudaSnapshot, KeepsTensorsThatNobodyElseHolds) {
  Snapshot snapshot;
  std::span<const CheckpointTensor> copies;
  {
    const std::vector<CheckpointTensor> tensors{CheckpointTensor::whole("only here", filled(kCount, 5))};
    copies = snapshot.take(tensors);
  }
  const Tensor other = filled(kCount, 6);  // would lie where the first one lay
  snapshot.wait();
  EXPECT_TRUE(holds(copies[0], 5));
  const std::int64_t held = Allocator::of(kGpu).stats().current;
  snapshot.before_change();
  EXPECT_EQ(held - Allocator::of(kGpu).stats().current, kCount * 4);
}

}  // namespace
}  // namespace quench
