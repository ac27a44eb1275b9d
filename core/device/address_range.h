#pragma once
// Bump allocator for growing segments.

#include <cstddef>
#include <cstdint>
#include <mutex>

namespace quench {

class AddressRange {
 public:
  AddressRange() = default;
  AddressRange(std::uintptr_t begin, std::uintptr_t end) noexcept : next_(begin), end_(end) {}

  // 0 if exhausted.
  [[nodiscard]] std::uintptr_t take(std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    if (bytes > end_ - next_) return 0;
    const std::uintptr_t first = next_;
    next_ += bytes;
    return first;
  }
  // Frees the last taken range; others leak.
  void give_back(std::uintptr_t first, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    if (first + bytes == next_) next_ = first;
  }

 private:
  std::mutex mutex_;
  std::uintptr_t next_ = 0;
  std::uintptr_t end_ = 0;
};

}  // namespace quench
