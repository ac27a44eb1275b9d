#pragma once
// Caching, stream-aware allocator of one device. It asks the operating system or driver for large segments, and splits,
// reuses and merges blocks of them. A training step in steady state asks for nothing (with optimizer state in host
// memory: after some tens of steps). Where the back end can place a segment behind the one before
// (Backend::allocate_behind), blocks may span contiguous segments, and a free block at the end of the last one is
// extended by what a request lacks.
//
// Placement is best fit, lowest address first, so that the resident set stays near the true peak. On CUDA a freed
// block is reused only by the stream that freed it (kernels may still read it).

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "core/device/device.h"
#include "core/memory/storage.h"

namespace quench {

struct MemoryStats {
  std::int64_t current = 0;   // bytes handed out
  std::int64_t peak = 0;      // highest `current` since reset_peak
  std::int64_t reserved = 0;  // bytes in segments
  std::int64_t peak_reserved = 0;
  std::int64_t segment_count = 0;  // number of segments requested so far: flat in steady state
  std::array<std::int64_t, kMemoryCategoryCount> current_by_category{};
  std::array<std::int64_t, kMemoryCategoryCount> peak_by_category{};  // each category's share at the total peak
};

class Allocator {
 public:
  // The allocator of a device; created on first use, lives until the program ends.
  static Allocator& of(Device device);

  // At least 64-byte aligned. Where a new segment does not fit, the wholly free ones are returned first. Throws
  // out_of_memory with the table of categories and what to change.
  void* allocate(std::size_t bytes, MemoryCategory category, Stream stream);
  void release(void* pointer, MemoryCategory category, Stream stream) noexcept;

  [[nodiscard]] MemoryStats stats() const;
  void reset_peak();
  // Returns wholly free segments to the system.
  void trim();
  // Bytes of the device that may be used at most; allocate fails beyond. 0: no limit.
  void set_limit(std::int64_t bytes);

  explicit Allocator(Device device);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

 private:
  struct State;
  Device device_;
  std::unique_ptr<State> state_;
};

// The table of categories that estimate and the out-of-memory message print, one row a category, in MiB.
[[nodiscard]] std::string memory_table(const MemoryStats& stats);

}  // namespace quench
