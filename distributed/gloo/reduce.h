#pragma once
// Reductions on the CPU with a fixed order of ranks.

#include <span>

#include "core/number/dtype.h"
#include "distributed/collective.h"

namespace quench::distributed {

// output[i] = op over sources[0][i], sources[1][i], ... in rank order: f32, f64, bf16 (accumulated in f32, rounded
// once), i32, i64. max and min propagate NaN. `output` may alias a source.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* output, std::int64_t count);

}  // namespace quench::distributed
