#pragma once
// GEMMs of a float8 scheme: native with padding, or emulated.

#include "autograd/fused_value.h"
#include "core/ops/scaled_gemm.h"
#include "recipes/float8/matrix.h"

namespace quench::recipes {

class Float8Gemms {
 public:
  Float8Gemms(const Float8Scheme& scheme, bool emulate, Device device)
      : scheme_(scheme), emulate_(emulate), native_(!emulate && !device.is_cpu()) {}

  [[nodiscard]] const Float8Scheme& scheme() const noexcept { return scheme_; }

  // Padded to a multiple of 16 for tensor cores.
  [[nodiscard]] std::int64_t size(std::int64_t n) const { return native_ ? (n + 15) / 16 * 16 : n; }

  void multiply(const QuantTensor& left, const QuantTensor& right, const Tensor& c, float beta,
                const Float8Product& product) const;

  // `training` includes wgrad.
  [[nodiscard]] Float8Uses input_uses(bool training) const;
  [[nodiscard]] Float8Uses weight_uses() const;
  [[nodiscard]] Float8Uses gradient_uses(bool input_wanted, bool weight_wanted) const;

 private:
  Float8Scheme scheme_;
  bool emulate_;
  bool native_;
};

// Fused quantization outputs to request. Producers round to nearest: with stochastic rounding only amax, and nothing
// where the cast computes it.
[[nodiscard]] autograd::QuantOutputRequest request_for(const Float8Uses& uses, const Float8Rounding& rounding = {},
                                                       const OperandScaling& scaling = {});

}  // namespace quench::recipes
