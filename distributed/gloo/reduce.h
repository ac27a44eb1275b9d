#pragma once
// Reduction of several ranks' values, in the order of ranks.

#include <span>

#include "core/number/dtype.h"
#include "distributed/collective.h"

namespace quench::distributed {

// output[i] = op over sources[0][i], sources[1][i], ...: f32, f64, bf16 (in f32, rounded once), i32, i64. NaN wins max
// and min. `output` may be one of the sources.
void reduce_in_order(DType dtype, ReduceOp op, std::span<const void* const> sources, void* output, std::int64_t count);

}  // namespace quench::distributed
