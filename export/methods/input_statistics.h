#pragma once
// Statistics of a linear layer's inputs.

#include <cstdint>
#include <string_view>

#include "core/tensor/tensor.h"

namespace quench {

class InputStatistics {
 public:
  // Inputs [M,columns]. `with_gram`: also the Gram matrix, columns^2 f32.
  InputStatistics(std::int64_t columns, bool with_gram);

  // f32 or bf16 [M,columns], contiguous, any device. Throws nonfinite naming `layer` for NaN or infinity.
  void add(const Tensor& x, std::string_view layer);
  // Factors f32 [columns], > 0, folded into the weight.
  void divide(const Tensor& factors);

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t columns() const noexcept { return largest_.size(0); }
  // f32 [columns], CPU: amax and mean absolute value.
  [[nodiscard]] const Tensor& largest() const noexcept { return largest_; }
  [[nodiscard]] Tensor mean_magnitude() const;
  // f64 [columns], CPU: sums of squares.
  [[nodiscard]] const Tensor& squares() const noexcept { return squares_; }
  [[nodiscard]] float amax() const;
  // f32 [columns,columns], CPU: x^T x over all inputs. Undefined without `with_gram`.
  [[nodiscard]] Tensor gram() const;

 private:
  std::int64_t rows_ = 0;
  Tensor largest_;    // f32
  Tensor magnitude_;  // f64 [columns]: sums
  Tensor squares_;    // f64 [columns]: sums
  Tensor gram_;       // on the inputs' device
  bool with_gram_;
};

// tr(D gram D^T), D f32 [N,K]: squared output error of the weight error D.
[[nodiscard]] double output_error(const Tensor& difference, const Tensor& gram);

}  // namespace quench
