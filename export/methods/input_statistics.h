#pragma once
// Statistics of a linear layer's inputs.

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/tensor/tensor.h"

namespace quench {

class InputStatistics {
 public:
  // Inputs [M,columns]. `with_gram`: also the Gram matrix, columns^2 f32.
  InputStatistics(std::int64_t columns, bool with_gram);

  // f32 or bf16 [M,columns], contiguous, any device. `first_rows`: first tokens of sequences. Throws nonfinite naming
  // `layer` for NaN or infinity.
  void add(const Tensor& x, std::string_view layer, std::span<const std::int64_t> first_rows = {});
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
  // f32 [columns,columns], CPU: x^T x over all inputs, where the first tokens of sequences have a weight w >= 1: most
  // heads attend to them (attention sinks), and their share of the inputs falls with the length of sequences. Of
  // sequences of L tokens w is kFirstShare L, at most what makes kFirstShare of the trace theirs. Undefined without
  // `with_gram`.
  [[nodiscard]] Tensor gram() const;
  // Mean over columns of the sum of squares over all inputs but first tokens; over all inputs where that is 0.
  [[nodiscard]] double mean_square_sum() const;
  static constexpr double kFirstShare = 1.0 / 32;

 private:
  [[nodiscard]] double squares_of_first() const;
  [[nodiscard]] double squares_of_all() const;

  std::int64_t rows_ = 0;
  Tensor largest_;            // f32
  Tensor magnitude_;          // f64 [columns]: sums
  Tensor squares_;            // f64 [columns]: sums
  Tensor gram_;               // on the inputs' device; unweighted
  std::vector<float> first_;  // [first tokens, columns]
  bool with_gram_;
};

// tr(D gram D^T), D f32 [N,K]: squared output error of the weight error D.
[[nodiscard]] double output_error(const Tensor& difference, const Tensor& gram);

}  // namespace quench
