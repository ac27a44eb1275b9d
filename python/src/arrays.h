#pragma once
// Arrays of callers as token ids, and tensors as arrays.

#include <cstdint>
#include <vector>

#include "core/tensor/tensor.h"
#include "python/src/bindings.h"

namespace quench::python {

// Token ids of one text [T], or of several [B,T] of equal length.
struct TokenBatch {
  std::vector<std::int32_t> ids;  // [B,T]
  std::int64_t rows = 0;
  std::int64_t length = 0;
  bool single = false;  // [T]
};

// From a list of integers, a list of such lists, or an integer array [T] or [B,T] of the CPU that speaks DLPack or the
// buffer protocol, of any strides. Throws invalid_argument naming `what` with the dtype, shape or device it got, for
// ragged lists, no tokens, and ids outside of [0, vocabulary).
[[nodiscard]] TokenBatch token_batch(nb::handle tokens, std::int64_t vocabulary, std::string_view what);
// One text [T].
[[nodiscard]] std::vector<std::int32_t> token_list(nb::handle tokens, std::int64_t vocabulary, std::string_view what);

// f32 or integer tensor, contiguous, as an array that speaks DLPack and, on the CPU, the buffer protocol. It shares the
// memory and keeps it alive.
[[nodiscard]] nb::object array_of(const Tensor& tensor);

}  // namespace quench::python
