#pragma once
// Argument checks. Every op throws invalid_argument naming op and mismatched tensor. A field without a comment is as in
// the struct above it (forward, AdamWTensor).

#include <initializer_list>

#include "core/tensor/tensor.h"

namespace quench {

// Dtypes of activations.
inline bool is_f32_or_bf16(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::bf16;
}

// Throws unless f32 or bf16 of the rank.
inline void check_float_tensor(std::string_view op, std::string_view name, const Tensor& tensor, int rank) {
  QUENCH_CHECK(tensor.defined() && tensor.rank() == rank && is_f32_or_bf16(tensor.dtype()),
               "{}: {} is {}, expected f32 or bf16 of rank {}", op, name, tensor.describe(), rank);
}

// Throws unless contiguous.
inline void check_contiguous(std::string_view op, std::string_view name, const Tensor& tensor) {
  QUENCH_CHECK(tensor.is_contiguous(), "{}: {} ({} with strides {}) must be contiguous", op, name, tensor.describe(),
               tensor.strides().to_string());
}

// Throws unless elements of the last axis are adjacent.
inline void check_contiguous_rows(std::string_view op, std::string_view name, const Tensor& tensor) {
  QUENCH_CHECK(tensor.size(-1) <= 1 || tensor.stride(-1) == 1, "{}: the last axis of {} ({} with strides {}) has gaps",
               op, name, tensor.describe(), tensor.strides().to_string());
}

// Accumulated gradient: f32 or the activations' dtype.
inline void check_gradient_sum(std::string_view op, std::string_view name, const Tensor& tensor, const Shape& shape,
                               DType dtype) {
  check_tensor(op, name, tensor, shape, tensor.defined() && tensor.dtype() == DType::f32 ? DType::f32 : dtype);
  check_contiguous(op, name, tensor);
}

// Undefined tensors are skipped.
inline void check_same_device(std::string_view op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;  // defined
  for (const Tensor* tensor : tensors) {
    if (!tensor->defined()) continue;
    if (first == nullptr) first = tensor;
    QUENCH_CHECK(tensor->device() == first->device(), "{}: tensors on {} and {}", op, first->device().to_string(),
                 tensor->device().to_string());
  }
}

}  // namespace quench
