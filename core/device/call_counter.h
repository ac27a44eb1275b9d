#pragma once
// Calls per op implementation, for tests and the run report.

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace quench {

// Namespace-scope object, registered by name ("attention.cudnn").
class CallCounter {
 public:
  explicit CallCounter(std::string_view name) noexcept;
  CallCounter(const CallCounter&) = delete;
  CallCounter& operator=(const CallCounter&) = delete;

  void add() noexcept { count_.fetch_add(1, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t count() const noexcept { return count_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::string_view name() const noexcept { return name_; }

 private:
  friend std::vector<std::pair<std::string_view, std::int64_t>> call_counts();
  std::string_view name_;
  std::atomic<std::int64_t> count_{0};
  const CallCounter* next_;
};

// Sorted by name.
[[nodiscard]] std::vector<std::pair<std::string_view, std::int64_t>> call_counts();
// 0 for an unknown name.
[[nodiscard]] std::int64_t call_count(std::string_view name);

}  // namespace quench
