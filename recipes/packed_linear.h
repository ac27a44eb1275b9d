#pragma once
// Linear layers whose weight stays in codes (core/tensor/packed_matrix.h): models that were quantized before they are
// served, or that carry adapters over a quantized base. The weight itself is frozen.

#include <functional>
#include <optional>
#include <utility>

#include "core/ops/quantize/quantize_int.h"
#include "core/tensor/packed_matrix.h"
#include "nn/linear.h"

namespace quench::recipes {

// What a product's input is rounded to first. Empty: to nothing, x itself is used.
class InputRounding {
 public:
  InputRounding() = default;
  // `values` rounds: values of x's shape and dtype. `integers`: the same as 8-bit codes by token; the products of few
  // tokens are then those of codes, where there is a kernel for them.
  template <class Values>
  InputRounding(Values values, std::optional<IntQuantOptions> integers = std::nullopt)  // NOLINT
      : values_(std::move(values)), integers_(integers) {}

  explicit operator bool() const noexcept { return static_cast<bool>(values_); }
  [[nodiscard]] Tensor operator()(const Tensor& x) const { return values_(x); }
  [[nodiscard]] const std::optional<IntQuantOptions>& integers() const noexcept { return integers_; }

 private:
  std::function<Tensor(const Tensor& x)> values_;
  std::optional<IntQuantOptions> integers_;
};

// The layer's weight is the packed matrix from now on, of the layer's shape and on its device; `dtype` is that of the
// values which others ask the weight for. Gradients flow to inputs, straight through their rounding, and to the bias.
// The parameter's own storage is not read any more.
void use_packed_weight(nn::Linear& layer, PackedMatrix weight, DType dtype, InputRounding rounding = {});

// Puts the values of such a weight into the parameter's own storage, for somebody who changes them; the layer computes
// in high precision from then on. Nothing for other layers.
void unpack_weight(nn::Linear& layer);

// Whether the layer has such a weight: recipes leave it as it is.
[[nodiscard]] bool has_packed_weight(const nn::Linear& layer);

}  // namespace quench::recipes
