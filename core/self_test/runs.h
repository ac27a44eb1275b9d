#pragma once
// Problems of the self-test's table (cases.cpp): outputs on the device.

#include <vector>

#include "core/tensor/tensor.h"

namespace quench::self_test {

using Outputs = std::vector<Tensor>;

// gemm_runs.cpp
[[nodiscard]] Outputs run_gemm(Device device);            // NT and NN in bf16, TN in f32
[[nodiscard]] Outputs run_few_rows(Device device);        // NT, 1 and 4 rows
[[nodiscard]] Outputs run_grouped_gemm(Device device);    // forward, dgrad, wgrad
[[nodiscard]] Outputs run_grouped_float8(Device device);  // forward, wgrad
[[nodiscard]] Outputs run_block_float8(Device device);    // forward, wgrad
[[nodiscard]] Outputs run_float8_gemm(Device device);
Outputs run_int8_gemm(Device device);                     // tensorwise, rowwise
[[nodiscard]] Outputs run_low_rank_gemm(Device device);   // A B^T + U V^T
[[nodiscard]] Outputs run_symmetric_gemm(Device device);  // A A^T

// layer_runs.cpp
[[nodiscard]] Outputs run_attention(Device device);         // out, dq, dk, dv; packed, uniform
[[nodiscard]] Outputs run_decode_attention(Device device);  // out
[[nodiscard]] Outputs run_cross_entropy(Device device);     // losses and gradients, f32 and bf16
[[nodiscard]] Outputs run_rms_norm(Device device);          // y, dx, dweight
[[nodiscard]] Outputs run_rope(Device device);              // forward, inverse
[[nodiscard]] Outputs run_swiglu(Device device);            // out, dgate_up
[[nodiscard]] Outputs run_embedding(Device device);         // rows, dtable
[[nodiscard]] Outputs run_adamw(Device device);             // parameter and states
[[nodiscard]] Outputs run_quantize(Device device);          // float8 rowwise, MXFP8, NVFP4, dequantized

// Tensor of i32 values.
[[nodiscard]] Tensor integers(std::initializer_list<std::int32_t> values, Device device);

}  // namespace quench::self_test
