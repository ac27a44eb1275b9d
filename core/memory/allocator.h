#pragma once
// Caching, stream-aware device allocator: splits, reuses and merges blocks of large segments. No segment is requested
// in steady state (with optimizer offload: after tens of steps). With Backend::allocate_behind, blocks may span
// contiguous segments and the last free block grows.
//
// Best fit, lowest address first: the resident set stays near the peak. On CUDA only the stream that freed a block
// reuses it, since kernels may still read it.

#include <array>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "core/device/device.h"
#include "core/memory/memory_part.h"
#include "core/memory/storage.h"

namespace quench {

// Bytes of a device's allocator.
struct MemoryStats {
  std::int64_t current = 0;   // allocated bytes
  std::int64_t peak = 0;      // since reset_peak
  std::int64_t reserved = 0;  // bytes in segments
  std::int64_t peak_reserved = 0;
  std::int64_t segment_count = 0;  // requested so far
  std::array<std::int64_t, kMemoryCategoryCount> current_by_category{};
  std::array<std::int64_t, kMemoryCategoryCount> peak_by_category{};  // at the total peak
  PartBytes current_by_part{};
  PartBytes peak_by_part{};  // at the total peak
};

class Allocator {
 public:
  // Process lifetime.
  static Allocator& of(Device device);

  // 64-byte aligned; counted in MemoryPartScope's part. Frees unused segments before failing. Throws out_of_memory with
  // the category table and advice.
  void* allocate(std::size_t bytes, MemoryCategory category, Stream stream);
  void release(void* pointer, MemoryCategory category, Stream stream) noexcept;

  [[nodiscard]] MemoryStats stats() const;
  void reset_peak();
  void trim();
  // Bytes beyond which allocate throws: segments, and on CUDA the memory outside them (memory_limit.h). 0: none.
  void set_limit(std::int64_t bytes);
  [[nodiscard]] std::int64_t limit() const;

  explicit Allocator(Device device);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

 private:
  struct State;
  Device device_;
  std::unique_ptr<State> state_;
};

// MiB.
[[nodiscard]] std::string memory_table(const MemoryStats& stats);

}  // namespace quench
