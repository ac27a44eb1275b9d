#pragma once
// The quantized forms of one layer's weight, made once for each version of it.

#include "nn/parameter.h"
#include "recipes/float8/matrix.h"

namespace quench::recipes {

// What the optimizer keeps up of a parameter's value, where it is of this version.
[[nodiscard]] Float8Sink known_maxima(const nn::Parameter& parameter);

class Float8Weight {
 public:
  // With `keep`, codes are kept from the first use until the weight changes: two bytes an element, and no cast in the
  // further micro-batches of a step. Otherwise they live as long as the product that needs them.
  Float8Weight(const Float8Uses& uses, bool keep) : uses_(uses), keep_(keep) {}

  // [N,K] for x W^T. `value` is the parameter's value (or a zero-padded copy of it). With `rows_follow` the scales for
  // along_rows() are made on the way: before a backward pass.
  [[nodiscard]] QuantTensor along_columns(const nn::Parameter& parameter, const Tensor& value, bool rows_follow);
  // [K,N] for dy W.
  [[nodiscard]] QuantTensor along_rows(const nn::Parameter& parameter, const Tensor& value);

 private:
  void refresh(const nn::Parameter& parameter, const Tensor& value, bool columns_wanted, bool rows_wanted);

  Float8Uses uses_;
  bool keep_;
  bool valid_ = false;
  std::uint64_t version_ = 0;
  const void* address_ = nullptr;  // of the value that the scales belong to
  Float8Matrix matrix_;
};

}  // namespace quench::recipes
