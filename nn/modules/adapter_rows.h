#pragma once
// Thread-local choice of an adapter for every row of a pass, which the kernels of an adapter bank read
// (recipes/lora/adapter_bank.h).

#include <utility>

#include "core/tensor/tensor.h"

namespace quench::nn {

class AdapterRowsScope {
 public:
  // i32 [rows of the pass] on the model's device: number of the adapter, -1: none. Undefined: no row has one.
  explicit AdapterRowsScope(Tensor rows) : rows_(std::move(rows)), before_(current_) { current_ = this; }
  ~AdapterRowsScope() { current_ = before_; }
  AdapterRowsScope(const AdapterRowsScope&) = delete;
  AdapterRowsScope& operator=(const AdapterRowsScope&) = delete;

  // Rows of the innermost scope; undefined without one.
  [[nodiscard]] static Tensor current() { return current_ != nullptr ? current_->rows_ : Tensor(); }

 private:
  static inline thread_local const AdapterRowsScope* current_ = nullptr;
  Tensor rows_;
  const AdapterRowsScope* before_;
};

}  // namespace quench::nn
