#pragma once
// Effect of an attention sink on a finished row.

#include <cmath>

namespace quench::cuda {

// lse' = log(exp(lse) + exp(sink)) and exp(lse - lse'), by which the row is multiplied. `plain`: finite.
struct SinkedRow {
  float lse, factor;
  __device__ SinkedRow(float plain, float sink) {
    const float top = fmaxf(plain, sink);
    lse = top + logf(expf(plain - top) + expf(sink - top));
    factor = expf(plain - lse);
  }
};

}  // namespace quench::cuda
