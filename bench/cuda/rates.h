#pragma once
// Rates of memory-bound calls, as shares of the copy rate.

#include <functional>
#include <string_view>

#include "core/tensor/tensor.h"

namespace quench::bench {

// Random values, a CPU block repeated on the GPU.
[[nodiscard]] Tensor random_on_gpu(const Shape& shape, DType dtype, double scale);

// Prints a line: `bytes` that a call must move, its time and rate. Operands should exceed L2.
void report_rate(std::string_view name, std::int64_t bytes, const std::function<void()>& call);

}  // namespace quench::bench
