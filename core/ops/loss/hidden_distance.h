#pragma once
// Loss and gradient of a row from its sums, for the kernels of hidden_loss.

#include <cmath>

#include "core/number/host_device.h"
#include "core/ops/loss/hidden_loss.h"

namespace quench {

// Sums over a row: (s - t)^2, s^2, t^2, s t.
struct HiddenSums {
  float squared_difference = 0, student = 0, teacher = 0, product = 0;
};

// d loss / d s = difference * (s - t) + student * s + teacher * t.
struct HiddenRow {
  float loss = 0;
  float difference = 0, student = 0, teacher = 0;
};

QUENCH_HOST_DEVICE inline HiddenRow hidden_row(HiddenDistance distance, const HiddenSums& sums, float width) {
  constexpr float kLeastNorm = 1e-8f;
  const float norm = fmaxf(sqrtf(sums.teacher), kLeastNorm);
  if (distance == HiddenDistance::cosine) {
    const float own = fmaxf(sqrtf(sums.student), kLeastNorm);
    const float cosine = sums.product / own / norm;
    return {1.0f - cosine, 0, cosine / own / own, -1.0f / own / norm};
  }
  const float divisor = distance == HiddenDistance::mse ? width : norm * norm;
  return {sums.squared_difference / divisor, 2.0f / divisor, 0, 0};
}

}  // namespace quench
