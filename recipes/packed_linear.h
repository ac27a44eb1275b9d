#pragma once
// Linear layers whose weight stays in codes (core/tensor/packed_matrix.h): models that were quantized before they are
// served, or that carry adapters over a quantized base. The weight itself is frozen.

#include <functional>

#include "core/tensor/packed_matrix.h"
#include "nn/linear.h"

namespace quench::recipes {

// What a product's input is rounded to first: values of x's shape and dtype. Empty: x itself.
using InputRounding = std::function<Tensor(const Tensor& x)>;

// The layer's weight is the packed matrix from now on, of the layer's shape and on its device; `dtype` is that of the
// values which others ask the weight for. Gradients flow to inputs, straight through their rounding, and to the bias.
// The layer's parameter gives up its storage.
void use_packed_weight(nn::Linear& layer, PackedMatrix weight, DType dtype, InputRounding rounding = {});

// Whether the layer has such a weight: recipes leave it as it is.
[[nodiscard]] bool has_packed_weight(const nn::Linear& layer);

}  // namespace quench::recipes
