#pragma once
// What calibration learns of the inputs of one linear layer.

#include <cstdint>
#include <string_view>

#include "core/tensor/tensor.h"

namespace quench {

class InputStatistics {
 public:
  // Of inputs [M,columns]. The Gram matrix takes columns^2 f32 numbers; without `with_gram` it is not made.
  InputStatistics(std::int64_t columns, bool with_gram);

  // x f32 or bf16 [M,columns], contiguous, on any device. Throws nonfinite naming `layer` for NaN or infinity.
  void add(const Tensor& x, std::string_view layer);
  // The inputs are divided by these factors, f32 [columns], all above 0: they move into the weight.
  void divide(const Tensor& factors);

  [[nodiscard]] std::int64_t rows() const noexcept { return rows_; }
  [[nodiscard]] std::int64_t columns() const noexcept { return largest_.size(0); }
  // f32 [columns] on the CPU: the largest magnitude of each column, and the mean of its magnitudes.
  [[nodiscard]] const Tensor& largest() const noexcept { return largest_; }
  [[nodiscard]] Tensor mean_magnitude() const;
  // The largest magnitude of all.
  [[nodiscard]] float amax() const;
  // f32 [columns,columns] on the CPU: x^T x summed over all inputs. Undefined where it is not made.
  [[nodiscard]] Tensor gram() const;

 private:
  std::int64_t rows_ = 0;
  Tensor largest_;    // f32
  Tensor magnitude_;  // f64 [columns]: sums of magnitudes
  Tensor gram_;       // on the device of the inputs
  bool with_gram_;
};

// tr(D gram D^T), D f32 [N,K]: the squared error that a weight's error D makes in the outputs of all inputs.
[[nodiscard]] double output_error(const Tensor& difference, const Tensor& gram);

}  // namespace quench
