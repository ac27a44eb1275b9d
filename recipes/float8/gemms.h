#pragma once
// How the products of a float8 scheme run on a device: natively with padding, or emulated.

#include "autograd/quant_output_request.h"
#include "core/ops/scaled_gemm.h"
#include "recipes/float8/matrix.h"

namespace quench::recipes {

class Float8Gemms {
 public:
  Float8Gemms(const Float8Scheme& scheme, bool emulate, Device device)
      : scheme_(scheme), emulate_(emulate), native_(!emulate && !device.is_cpu()) {}

  [[nodiscard]] const Float8Scheme& scheme() const noexcept { return scheme_; }

  // The size that stands for n in a product: tensor cores contract over, and write rows of, multiples of 16.
  [[nodiscard]] std::int64_t size(std::int64_t n) const { return native_ ? (n + 15) / 16 * 16 : n; }

  // c = left * right^T + beta * c.
  void multiply(const QuantTensor& left, const QuantTensor& right, const Tensor& c, float beta,
                const Float8Product& product) const;

  // How each matrix takes part. `training`: its use for the weight's gradient counts.
  [[nodiscard]] Float8Uses input_uses(bool training) const;
  [[nodiscard]] Float8Uses weight_uses() const;
  [[nodiscard]] Float8Uses gradient_uses(bool input_wanted, bool weight_wanted) const;

 private:
  Float8Scheme scheme_;
  bool emulate_;
  bool native_;
};

// What the producer of a matrix with these uses may write beside it. Producers round to nearest: with another rounding
// they write maxima only, and none where the cast finds them itself on the way.
[[nodiscard]] autograd::QuantOutputRequest request_for(const Float8Uses& uses, const Float8Rounding& rounding = {});

// The matrix with zeros behind its rows and columns, or itself where nothing is missing. Zeros change no sum and no
// maximum.
[[nodiscard]] Tensor zero_padded(const Tensor& x, std::int64_t rows, std::int64_t columns);

}  // namespace quench::recipes
