#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "core/memory/allocator.h"
#include "tests/cuda/cuda_testing.h"

// The allocator over mapped device memory; tests/core/memory/allocator_test.cpp has the same over host memory.
namespace quench {
namespace {

using testing::kGpu;
constexpr std::size_t kMiB = std::size_t{1} << 20;

class GrowingMemoryTest : public ::testing::Test {
 protected:
  [[nodiscard]] void* take(std::size_t bytes) { return allocator_.allocate(bytes, MemoryCategory::other, stream_); }
  void give(void* pointer) { allocator_.release(pointer, MemoryCategory::other, stream_); }

  void write(void* to, const std::vector<unsigned char>& bytes) {
    backend(DeviceType::cuda).copy(to, kGpu, bytes.data(), Device{}, bytes.size(), stream_);
    backend(DeviceType::cuda).synchronize(stream_);
  }
  [[nodiscard]] std::vector<unsigned char> read(const void* from, std::size_t bytes) {
    std::vector<unsigned char> result(bytes);
    backend(DeviceType::cuda).copy(result.data(), Device{}, from, kGpu, bytes, stream_);
    backend(DeviceType::cuda).synchronize(stream_);
    return result;
  }
  static std::vector<unsigned char> pattern(std::size_t bytes, unsigned seed) {
    std::vector<unsigned char> result(bytes);
    std::mt19937 random(seed);
    for (unsigned char& byte : result) byte = static_cast<unsigned char>(random());
    return result;
  }

  Allocator allocator_{kGpu};
  Stream stream_ = current_stream(kGpu);
};

// Copies and a fill that cross the border of two mappings.
TEST_F(GrowingMemoryTest, BlocksLieAcrossMappings) {
  void* first = take(20 * kMiB);
  void* second = take(20 * kMiB);
  void* last = take(20 * kMiB);
  // Every GPU that this build has kernels for has virtual memory management.
  ASSERT_EQ(static_cast<char*>(first) + 20 * kMiB, second) << "the driver maps no growing memory";
  give(first);
  give(second);
  void* joint = take(40 * kMiB);
  ASSERT_EQ(joint, first);
  const std::vector<unsigned char> bytes = pattern(40 * kMiB, 1);
  write(joint, bytes);
  EXPECT_EQ(read(joint, bytes.size()), bytes);
  backend(DeviceType::cuda).copy(last, kGpu, static_cast<char*>(joint) + 15 * kMiB, kGpu, 10 * kMiB, stream_);
  EXPECT_EQ(read(last, 10 * kMiB), std::vector<unsigned char>(bytes.begin() + 15 * kMiB, bytes.begin() + 25 * kMiB));
  backend(DeviceType::cuda).fill_zero(static_cast<char*>(joint) + 19 * kMiB, 2 * kMiB, stream_);
  EXPECT_EQ(read(static_cast<char*>(joint) + 19 * kMiB, 2 * kMiB), std::vector<unsigned char>(2 * kMiB, 0));
  give(joint);
  give(last);
}

TEST_F(GrowingMemoryTest, TrimUnmapsTheMiddleAndNothingElse) {
  std::vector<void*> all;
  for (unsigned i = 0; i < 5; ++i) {
    all.push_back(take(16 * kMiB));
    write(all.back(), pattern(16 * kMiB, i));
  }
  const std::int64_t free_before = backend(DeviceType::cuda).memory(kGpu).free_bytes;
  give(all[1]);
  give(all[2]);
  allocator_.trim();
  EXPECT_EQ(allocator_.stats().reserved, 48 << 20);
  EXPECT_GE(backend(DeviceType::cuda).memory(kGpu).free_bytes, free_before + (32 << 20));
  for (const unsigned i : {0u, 3u, 4u}) EXPECT_EQ(read(all[i], 16 * kMiB), pattern(16 * kMiB, i)) << i;
  void* again = take(32 * kMiB);
  const std::vector<unsigned char> bytes = pattern(32 * kMiB, 9);
  write(again, bytes);
  EXPECT_EQ(read(again, bytes.size()), bytes);
  for (void* pointer : {all[0], all[3], all[4], again}) give(pointer);
  allocator_.trim();
  EXPECT_EQ(allocator_.stats().reserved, 0);
}

TEST_F(GrowingMemoryTest, TooMuchIsOutOfMemoryAndHarmsNothing) {
  void* held = take(16 * kMiB);
  const std::vector<unsigned char> bytes = pattern(16 * kMiB, 3);
  write(held, bytes);
  const auto total = static_cast<std::size_t>(backend(DeviceType::cuda).memory(kGpu).total_bytes);
  try {
    (void)take(2 * total);
    FAIL() << "twice the device's memory was given";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  }
  EXPECT_EQ(read(held, bytes.size()), bytes);
  void* more = take(64 * kMiB);
  give(more);
  give(held);
}

}  // namespace
}  // namespace quench
