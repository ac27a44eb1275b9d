#pragma once
// A promise about the ops that a thread queues: nothing in them writes the weights, and what wrote them before is done.
// A kernel may then read its weight while the one in front of it still runs (core/cuda/common/pdl.cuh). Made
// for work that is captured to be launched on its own (core/memory/captured_work.h).

#include <algorithm>
#include <utility>
#include <vector>

namespace quench {

class ConstantWeights {
 public:
  // Of packed weights, and of weights in values that begin at these addresses: others may be made on the way.
  explicit ConstantWeights(std::vector<const void*> values = {}) : values_(std::move(values)), before_(promise_) {
    std::sort(values_.begin(), values_.end());
    promise_ = this;
  }
  ~ConstantWeights() { promise_ = before_; }
  ConstantWeights(const ConstantWeights&) = delete;
  ConstantWeights& operator=(const ConstantWeights&) = delete;

  [[nodiscard]] static bool of_packed() noexcept { return promise_ != nullptr; }
  [[nodiscard]] static bool of_values(const void* begin) noexcept {
    return promise_ != nullptr && std::binary_search(promise_->values_.begin(), promise_->values_.end(), begin);
  }

 private:
  static inline thread_local const ConstantWeights* promise_ = nullptr;
  std::vector<const void*> values_;
  const ConstantWeights* before_;
};

}  // namespace quench
