#include "core/device/call_counter.h"

#include <algorithm>

namespace quench {
namespace {
constinit const CallCounter* first_counter = nullptr;  // written during static initialization only
}

CallCounter::CallCounter(std::string_view name) noexcept : name_(name), next_(first_counter) {
  first_counter = this;
}

std::vector<std::pair<std::string_view, std::int64_t>> call_counts() {
  std::vector<std::pair<std::string_view, std::int64_t>> result;
  for (const CallCounter* counter = first_counter; counter != nullptr; counter = counter->next_)
    result.emplace_back(counter->name(), counter->count());
  std::sort(result.begin(), result.end());
  return result;
}

std::int64_t call_count(std::string_view name) {
  for (const auto& [known, count] : call_counts())
    if (known == name) return count;
  return 0;
}

}  // namespace quench
