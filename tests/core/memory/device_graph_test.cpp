#include "core/memory/device_graph.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "core/memory/allocator.h"
#include "core/tensor/host_copy.h"

namespace quench {
namespace {

std::int64_t memory_in_use() {
  return Allocator::of(Device{}).stats().current;
}

TEST(GraphMemory, IsGivenBackAtTheEndNotBefore) {
  const std::int64_t before = memory_in_use();
  {
    GraphMemory kept;
    const void* address = nullptr;
    {
      const GraphMemory::Scope scope(kept);
      address = Tensor::empty({1000}, DType::f32).raw_data();
      for (int i = 0; i < 3; ++i) EXPECT_NE(Tensor::empty({1000}, DType::f32).raw_data(), address);
    }
    EXPECT_GE(memory_in_use() - before, 16000);
    for (int i = 0; i < 3; ++i) EXPECT_NE(Tensor::empty({1000}, DType::f32).raw_data(), address);
    EXPECT_LT(memory_in_use() - before, 17000);  // tensors outside the scope come and go
  }
  EXPECT_EQ(memory_in_use(), before);
}

TEST(GraphMemory, ScopesNestAndEndWithAnException) {
  const std::int64_t before = memory_in_use();
  {
    GraphMemory outer, inner;
    const GraphMemory::Scope outer_scope(outer);
    try {
      const GraphMemory::Scope inner_scope(inner);
      (void)Tensor::empty({100}, DType::f32);
      throw std::runtime_error("no");
    } catch (const std::runtime_error&) {
    }
    (void)Tensor::empty({100}, DType::f32);
    EXPECT_GE(memory_in_use() - before, 800);
  }
  (void)Tensor::empty({100}, DType::f32);
  EXPECT_EQ(memory_in_use(), before);
}

TEST(DeviceGraph, IsNothingWhereTheDeviceHasNoGraphs) {
  int calls = 0;
  EXPECT_EQ(DeviceGraph::capture(Device{}, [&] { ++calls; }), nullptr);
  EXPECT_EQ(calls, 0);
}

TEST(HostCopy, KeepsTheValuesThatTheSourceHad) {
  const Tensor source = Tensor::from_values<std::int32_t>({2}, std::vector<std::int32_t>{4, 5});
  HostCopy first(source);
  source.data<std::int32_t>()[0] = 7;
  EXPECT_EQ(first.get().data<std::int32_t>()[0], 4);
  HostCopy moved(std::move(first));
  EXPECT_EQ(moved.get().data<std::int32_t>()[1], 5);
  moved = HostCopy(source);
  EXPECT_EQ(moved.get().data<std::int32_t>()[0], 7);
  EXPECT_THROW(HostCopy(Tensor::zeros({4, 4}, DType::f32).narrow(1, 0, 2)), Error);
}

}  // namespace
}  // namespace quench
