#pragma once
// Log-sum-exp and summands of divergences in the kernels of distillation.

#include "core/cuda/vocabulary/cross_entropy.cuh"
#include "core/ops/loss/distillation_loss.h"

namespace quench::cuda {

// Running maximum and sum of exponentials, relative to it.
struct OnlineSum {
  float largest = -INFINITY, sum = 0;

  template <int N>
  __device__ void add(const Vector<float, N>& x, float scale) {
    float most = largest;
#pragma unroll
    for (int j = 0; j < N; ++j) most = fmaxf(most, x[j] * scale);
    const float shift = shift_of(most);
    if (most > largest) sum *= expf(largest - shift);
    largest = most;
#pragma unroll
    for (int j = 0; j < N; ++j) sum += expf(x[j] * scale - shift);
  }

  // Over the CTA, in every thread; -inf without terms.
  template <int kThreads>
  __device__ float log_sum(float* scratch) const {
    const float row = block_reduce<kThreads>(largest, -INFINITY, scratch, LargestNumber());
    const float total = block_reduce<kThreads>(sum * expf(largest - shift_of(row)), 0.0f, scratch, Sum());
    return shift_of(row) + logf(total);
  }
};

// Outcome with log-probabilities a of the teacher and b of the student: summand of D, and g of dD/dz = q (g - sum of q
// g) / T.
struct DivergenceTerm {
  float p, q, summand, g;

  __device__ DivergenceTerm(float a, float b, Divergence divergence, float beta) : p(expf(a)), q(expf(b)) {
    if (divergence == Divergence::forward_kl) {
      summand = p == 0 ? 0 : p * (a - b);
      g = 0;
    } else if (divergence == Divergence::reverse_kl) {
      g = q == 0 ? 0 : b - a;
      summand = q * g;
    } else {
      const float d = b - a;  // log m from the larger of a and b
      const float mixed = d <= 0 ? a + logf(beta + (1 - beta) * expf(d)) : b + logf(1 - beta + beta * expf(-d));
      g = q == 0 ? 0 : (1 - beta) * (b - mixed);
      summand = (p == 0 ? 0 : beta * p * (a - mixed)) + q * g;
    }
  }
};

}  // namespace quench::cuda
