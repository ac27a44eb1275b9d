#pragma once
// Rates of calls that are bound by memory, as shares of the rate of a copy.

#include <functional>
#include <string_view>

#include "core/tensor/tensor.h"

namespace quench::bench {

// Random values of ordinary size, made on the GPU by repeating what the CPU made.
[[nodiscard]] Tensor random_on_gpu(const Shape& shape, DType dtype, double scale);

// Prints a line: `bytes` that a call must move, its time, and the rate of that. Operands should exceed the L2 cache.
void report_rate(std::string_view name, std::int64_t bytes, const std::function<void()>& call);

}  // namespace quench::bench
