#include "core/memory/allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

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

// Memory counts in the part of its allocation, wherever it is released.
TEST(Allocator, CountsPartsOfCategoriesAtThePeak) {
  Allocator allocator(Device{});
  const Stream stream;
  const auto take = [&](MemoryPart part) {
    const MemoryPartScope scope(part);
    return allocator.allocate(4 * kMiB, MemoryCategory::activations, stream);
  };
  const auto at = [](const PartBytes& bytes, MemoryPart part) {
    return bytes[static_cast<std::size_t>(MemoryCategory::activations)][static_cast<std::size_t>(part)];
  };
  void* attention = take(MemoryPart::attention);
  void* other = allocator.allocate(kMiB, MemoryCategory::activations, stream);
  allocator.release(attention, MemoryCategory::activations, stream);
  void* logits = take(MemoryPart::logits);
  const MemoryStats stats = allocator.stats();
  EXPECT_EQ(at(stats.current_by_part, MemoryPart::attention), 0);
  EXPECT_EQ(at(stats.current_by_part, MemoryPart::logits), 4 << 20);
  EXPECT_EQ(at(stats.peak_by_part, MemoryPart::attention), 4 << 20);
  EXPECT_EQ(at(stats.peak_by_part, MemoryPart::other), 1 << 20);
  EXPECT_EQ(at(stats.peak_by_part, MemoryPart::logits), 0) << "the peak is not exceeded";
  allocator.release(logits, MemoryCategory::activations, stream);
  allocator.release(other, MemoryCategory::activations, stream);
  EXPECT_EQ(MemoryPartScope::current(), MemoryPart::other);
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

// What two neighbours leave holds one request of their joint size, though they came in segments of their own.
TEST(Allocator, BlocksLieAcrossSegments) {
  Allocator allocator(Device{});
  const Stream stream;
  void* first = allocator.allocate(40 * kMiB, MemoryCategory::other, stream);
  void* second = allocator.allocate(40 * kMiB, MemoryCategory::other, stream);
  void* last = allocator.allocate(40 * kMiB, MemoryCategory::other, stream);
  ASSERT_EQ(allocator.stats().segment_count, 3);
  allocator.release(first, MemoryCategory::other, stream);
  allocator.release(second, MemoryCategory::other, stream);
  void* joint = allocator.allocate(80 * kMiB, MemoryCategory::other, stream);
  EXPECT_EQ(joint, first);
  std::memset(joint, 1, 80 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, 120 << 20);
  for (void* pointer : {joint, last}) allocator.release(pointer, MemoryCategory::other, stream);
}

// A free block at the end is lengthened by what it lacks.
TEST(Allocator, TheLastBlockGrows) {
  Allocator allocator(Device{});
  const Stream stream;
  void* first = allocator.allocate(40 * kMiB, MemoryCategory::other, stream);
  allocator.release(first, MemoryCategory::other, stream);
  void* longer = allocator.allocate(101 * kMiB, MemoryCategory::other, stream);
  EXPECT_EQ(longer, first);
  EXPECT_EQ(allocator.stats().reserved, 102 << 20);
  std::memset(longer, 1, 101 * kMiB);
  allocator.release(longer, MemoryCategory::other, stream);
}

// A segment in the middle goes back when all of it is free; the addresses around it stay as they are.
TEST(Allocator, TrimReturnsSegmentsFromTheMiddle) {
  Allocator allocator(Device{});
  const Stream stream;
  std::vector<void*> all;
  for (int i = 0; i < 5; ++i) all.push_back(allocator.allocate(32 * kMiB, MemoryCategory::other, stream));
  for (const int i : {1, 2}) allocator.release(all[static_cast<std::size_t>(i)], MemoryCategory::other, stream);
  allocator.trim();
  EXPECT_EQ(allocator.stats().reserved, 96 << 20);
  for (const int i : {0, 3, 4}) std::memset(all[static_cast<std::size_t>(i)], i, 32 * kMiB);
  void* again = allocator.allocate(64 * kMiB, MemoryCategory::other, stream);
  std::memset(again, 1, 64 * kMiB);
  EXPECT_EQ(allocator.stats().reserved, 160 << 20);
  for (void* pointer : {all[0], all[3], all[4], again}) allocator.release(pointer, MemoryCategory::other, stream);
  allocator.trim();
  EXPECT_EQ(allocator.stats().reserved, 0);
  EXPECT_EQ(allocator.stats().current, 0);
}

// Any order of requests, releases and trims: blocks never overlap, and the counts come out even.
TEST(Allocator, BlocksNeverOverlap) {
  Allocator allocator(Device{});
  allocator.set_limit(600 << 20);
  int handle = 0;
  const std::array<Stream, 2> streams{Stream{}, Stream{Device{}, &handle}};
  struct Held {
    unsigned char* pointer;
    std::size_t bytes;
    unsigned char mark;
    Stream stream;
  };
  std::vector<Held> held;
  std::mt19937 random(7);
  const auto intact = [](const Held& h) {
    return h.pointer[0] == h.mark && h.pointer[h.bytes / 2] == h.mark && h.pointer[h.bytes - 1] == h.mark;
  };
  for (int i = 0; i < 4000; ++i) {
    const auto choice = random() % 100;
    if (choice < 50) {
      const std::size_t bytes = random() % 4 == 0 ? 1 + random() % (40 * kMiB) : 1 + random() % (2 * kMiB);
      const Stream stream = streams[random() % 2];
      try {
        auto* pointer = static_cast<unsigned char*>(allocator.allocate(bytes, MemoryCategory::other, stream));
        const auto mark = static_cast<unsigned char>(i);
        pointer[0] = pointer[bytes / 2] = pointer[bytes - 1] = mark;
        held.push_back({pointer, bytes, mark, stream});
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      }
    } else if (choice < 99 && !held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      ASSERT_TRUE(intact(held.back())) << i;
      allocator.release(held.back().pointer, MemoryCategory::other, held.back().stream);
      held.pop_back();
    } else {
      allocator.trim();
    }
    ASSERT_LE(allocator.stats().reserved, 600 << 20);
    ASSERT_LE(allocator.stats().current, allocator.stats().reserved);
  }
  for (const Held& h : held) {
    EXPECT_TRUE(intact(h));
    allocator.release(h.pointer, MemoryCategory::other, h.stream);
  }
  allocator.trim();
  EXPECT_EQ(allocator.stats().current, 0);
  EXPECT_EQ(allocator.stats().reserved, 0);
}

}  // namespace
}  // namespace quench
