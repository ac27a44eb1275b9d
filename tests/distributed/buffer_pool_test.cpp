#include "distributed/fsdp/buffer_pool.h"

#include <gtest/gtest.h>

#include "core/memory/allocator.h"

namespace quench::distributed {
namespace {

TEST(BufferPool, BuffersTakeTurnsUntilThePoolIsTrimmed) {
  const auto handed_out = [] { return Allocator::of(Device{}).stats().current; };
  const std::int64_t before = handed_out();
  BufferPool pool(Device{}, MemoryCategory::parameters);
  const Tensor used = pool.acquire({1000, 10}, DType::f32);
  Tensor buffer = pool.acquire({100, 100}, DType::f32);
  const void* address = buffer.raw_data();
  pool.give_back(buffer);
  buffer = Tensor();
  const std::int64_t two = handed_out();

  buffer = pool.acquire({10'000}, DType::f32);  // another shape of as many elements
  EXPECT_EQ(buffer.raw_data(), address);
  EXPECT_EQ(handed_out(), two);
  pool.trim();  // one in use stays
  EXPECT_EQ(handed_out(), two);

  pool.give_back(buffer);
  buffer = Tensor();
  pool.trim();
  EXPECT_EQ(handed_out(), before + (two - before) / 2);
  EXPECT_EQ(used.size(0), 1000);
}

}  // namespace
}  // namespace quench::distributed
