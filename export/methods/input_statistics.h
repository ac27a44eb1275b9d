#pragma once
// Calibration statistics of one linear layer's inputs.

#include <cstdint>
#include <string_view>

#include "core/tensor/tensor.h"

namespace quench {

class InputStatistics {
 public:
  // For inputs [M,columns]. `with_gram`: also accumulates the Gram matrix, columns^2 f32.
  InputStatistics(std::int64_t columns, bool with_gram);

  // x f32 or bf16 [M,columns], contiguous, any device. Throws nonfinite naming `layer` for NaN or infinity.
  void add(const Tensor& x, std::string_view layer);
  // Divides the inputs by factors f32 [columns], all > 0, which are folded into the weight.
  void divide(const Tensor& factors);

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t columns() const noexcept { return largest_.size(0); }
  // f32 [columns] on the CPU: amax and mean absolute value per column.
  [[nodiscard]] const Tensor& largest() const noexcept { return largest_; }
  [[nodiscard]] Tensor mean_magnitude() const;
  // amax over all columns.
  [[nodiscard]] float amax() const;
  // f32 [columns,columns] on the CPU: x^T x summed over all inputs. Undefined without `with_gram`.
  [[nodiscard]] Tensor gram() const;

 private:
  std::int64_t rows_ = 0;
  Tensor largest_;    // f32
  Tensor magnitude_;  // f64 [columns]: sums of magnitudes
  Tensor gram_;       // on the device of the inputs
  bool with_gram_;
};

// tr(D gram D^T), D f32 [N,K]: squared output error caused by the weight error D.
[[nodiscard]] double output_error(const Tensor& difference, const Tensor& gram);

}  // namespace quench
