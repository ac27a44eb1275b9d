#include "core/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quench {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;

TEST(Allocator, IdleSegmentsMakeRoomForALargerRequest) {
  Allocator allocator(Device{});
  allocator.set_limit(64 << 20);
  const Stream stream;
  void* first = allocator.allocate(40 * kMiB, MemoryCategory::activations, stream);
  allocator.release(first, MemoryCategory::activations, stream);
  EXPECT_EQ(allocator.stats().reserved, 40 << 20);
  void* second = allocator.allocate(48 * kMiB, MemoryCategory::activations, stream);
  EXPECT_EQ(allocator.stats().reserved, 48 << 20);
  allocator.release(second, MemoryCategory::activations, stream);
}

// Memory freed by one stream is not handed to another as it is, but may go back to the device and come again.
TEST(Allocator, IdleSegmentsOfAnotherStreamMakeRoom) {
  Allocator allocator(Device{});
  allocator.set_limit(64 << 20);
  int handle = 0;
  const Stream one, other{Device{}, &handle};
  void* first = allocator.allocate(40 * kMiB, MemoryCategory::activations, one);
  allocator.release(first, MemoryCategory::activations, one);
  void* second = allocator.allocate(40 * kMiB, MemoryCategory::activations, other);
  EXPECT_EQ(allocator.stats().segment_count, 2);
  EXPECT_EQ(allocator.stats().reserved, 40 << 20);
  allocator.release(second, MemoryCategory::activations, other);
}

TEST(Allocator, OutOfMemoryLeavesTheAllocatorUsableAndSaysWhatToDo) {
  Allocator allocator(Device{});
  allocator.set_limit(64 << 20);
  const Stream stream;
  void* held = allocator.allocate(40 * kMiB, MemoryCategory::parameters, stream);
  try {
    (void)allocator.allocate(48 * kMiB, MemoryCategory::activations, stream);
    FAIL() << "the limit was ignored";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_THAT(error.what(), testing::HasSubstr("out of memory on cpu"));
    EXPECT_THAT(error.what(), testing::HasSubstr("parameters"));
    EXPECT_THAT(error.what(), testing::HasSubstr("training.micro_batch_size"));
  }
  EXPECT_EQ(allocator.stats().current, 40 << 20);
  allocator.release(held, MemoryCategory::parameters, stream);
  EXPECT_EQ(allocator.stats().current, 0);
}

}  // namespace
}  // namespace quench
