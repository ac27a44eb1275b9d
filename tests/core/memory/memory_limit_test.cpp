#include "core/memory/memory_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "core/memory/allocator.h"

namespace quench {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(MemoryLimit, SizesAreNumbersWithAUnit) {
  EXPECT_EQ(parse_memory_size("24GB"), 24'000'000'000);
  EXPECT_EQ(parse_memory_size("16GiB"), 16 * kGiB);
  EXPECT_EQ(parse_memory_size("1.5 GiB"), 3 * kGiB / 2);
  EXPECT_EQ(parse_memory_size("512MiB"), kGiB / 2);
  EXPECT_EQ(parse_memory_size("800MB"), 800'000'000);
  for (const char* text : {"", "GB", "24", "24 gb", "24GBs", "-1GB", "0GB", "0.5 MiB", "nanGB", "infGB", "1e3GB",
                           "24  GB", "2000000000GB", "0x10GB"})
    EXPECT_EQ(parse_memory_size(text), std::nullopt) << text;
  EXPECT_THAT(message_of([] { (void)require_memory_size("24", "--memory-limit"); }),
              HasSubstr("--memory-limit '24' is not a memory size"));
  EXPECT_THAT(message_of([] { (void)require_memory_size("1MB", "--memory-limit"); }), HasSubstr("of 1 MiB or more"));
}

TEST(MemoryLimit, CountsMemoryOutsideTheAllocatorUpToABound) {
  EXPECT_EQ(outside_bytes({70 * kGiB, 80 * kGiB}, 10 * kGiB - 5), 5);
  EXPECT_EQ(outside_bytes({70 * kGiB, 80 * kGiB}, 2 * kGiB), kMostOutsideBytes);  // another process's
  EXPECT_EQ(outside_bytes({80 * kGiB, 80 * kGiB}, kGiB), 0);
}

TEST(MemoryLimit, FreeMemoryIsTheSmallerOfDeviceAndLimit) {
  const DeviceMemory device{70 * kGiB, 80 * kGiB};
  EXPECT_EQ(within_limit(device, kGiB, 0).free_bytes, 70 * kGiB);
  EXPECT_EQ(within_limit(device, kGiB, 24 * kGiB).free_bytes, 22 * kGiB);
  EXPECT_EQ(within_limit(device, kGiB, 24 * kGiB).total_bytes, 24 * kGiB);
  EXPECT_EQ(within_limit(device, 30 * kGiB, 24 * kGiB).free_bytes, 0);
  EXPECT_EQ(within_limit({3 * kGiB, 80 * kGiB}, kGiB, 24 * kGiB).free_bytes, 3 * kGiB);  // shared GPU
}

TEST(MemoryLimit, ExceedingItNamesLimitUseAndRemedy) {
  Allocator allocator(Device{});
  allocator.set_limit(64 << 20);
  EXPECT_EQ(allocator.limit(), 64 << 20);
  void* held = allocator.allocate(40 << 20, MemoryCategory::parameters, Stream{});
  const std::string message =
      message_of([&] { (void)allocator.allocate(48 << 20, MemoryCategory::activations, Stream{}); });
  for (const char* part : {"out of memory on cpu: 50331648 bytes for activations", "memory limit 67108864 bytes",
                           "0 of 41943040 bytes taken are not in use", "raise --memory-limit (training.memory_limit)"})
    EXPECT_THAT(message, HasSubstr(part));
  allocator.set_limit(0);
  void* more = allocator.allocate(48 << 20, MemoryCategory::activations, Stream{});
  allocator.release(more, MemoryCategory::activations, Stream{});
  allocator.release(held, MemoryCategory::parameters, Stream{});
}

TEST(MemoryLimit, IsRefusedOnCpu) {
  EXPECT_THAT(message_of([] { limit_memory(Device{}, "24GB", "--memory-limit"); }),
              HasSubstr("--memory-limit limits GPU memory, and the device is cpu"));
  EXPECT_NO_THROW(limit_memory(Device{}, "", "--memory-limit"));
}

}  // namespace
}  // namespace quench
