#pragma once
// Thread-local guarantee for captured ops: no op writes the weights, and earlier writes are complete. PDL kernels may
// then read weights while the preceding kernel runs (pdl.cuh). A page table among them (paged_attention.h) stands for
// positions and the rows of earlier tokens too.

#include <algorithm>
#include <utility>
#include <vector>

namespace quench {

class ReadOnlyWeightsScope {
 public:
  // All packed weights, and unpacked ones at these addresses.
  explicit ReadOnlyWeightsScope(std::vector<const void*> values = {}) : values_(std::move(values)), before_(promise_) {
    std::sort(values_.begin(), values_.end());
    promise_ = this;
  }
  ~ReadOnlyWeightsScope() { promise_ = before_; }
  ReadOnlyWeightsScope(const ReadOnlyWeightsScope&) = delete;
  ReadOnlyWeightsScope& operator=(const ReadOnlyWeightsScope&) = delete;

  [[nodiscard]] static bool of_packed() noexcept { return promise_ != nullptr; }
  [[nodiscard]] static bool of_values(const void* begin) noexcept {
    return promise_ != nullptr && std::binary_search(promise_->values_.begin(), promise_->values_.end(), begin);
  }

 private:
  static inline thread_local const ReadOnlyWeightsScope* promise_ = nullptr;
  std::vector<const void*> values_;
  const ReadOnlyWeightsScope* before_;
};

}  // namespace quench
