#pragma once
// Linear layers with frozen packed weights (core/tensor/packed_matrix.h).

#include <functional>
#include <optional>
#include <utility>

#include "core/ops/quantize/quantize_int.h"
#include "core/tensor/packed_matrix.h"
#include "core/tensor/quant_tensor.h"
#include "nn/modules/linear.h"

namespace quench::recipes {

// Fake quantization of a GEMM's input; empty: none.
class InputRounding {
 public:
  InputRounding() = default;
  // `values` returns quantize-dequantized x. `integers`: the equivalent int8 tokenwise format, used by GEMMs of few
  // tokens if supported.
  template <class Values>
  InputRounding(Values values, std::optional<IntQuantOptions> integers = std::nullopt)  // NOLINT
      : values_(std::move(values)), integers_(integers) {}
  // `nvfp4`: the same values as codes, used by GEMMs of many tokens on block-scaled tensor cores.
  [[nodiscard]] InputRounding with_nvfp4(std::function<QuantTensor(const Tensor& x)> nvfp4) && {
    nvfp4_ = std::move(nvfp4);
    return std::move(*this);
  }

  explicit operator bool() const noexcept { return static_cast<bool>(values_); }
  [[nodiscard]] Tensor operator()(const Tensor& x) const { return values_(x); }
  [[nodiscard]] const std::optional<IntQuantOptions>& integers() const noexcept { return integers_; }
  [[nodiscard]] const std::function<QuantTensor(const Tensor& x)>& nvfp4() const noexcept { return nvfp4_; }

 private:
  std::function<Tensor(const Tensor& x)> values_;
  std::optional<IntQuantOptions> integers_;
  std::function<QuantTensor(const Tensor& x)> nvfp4_;
};

// Replaces the layer's weight by a packed matrix of its shape and device; `dtype`: dequantized. Gradients:
// straight-through to inputs, and to the bias. The parameter's own storage is no longer read.
void use_packed_weight(nn::Linear& layer, PackedMatrix weight, DType dtype, InputRounding rounding = {});

// Dequantizes into the parameter's own storage; the layer then runs in high precision. No-op for other layers.
void unpack_weight(nn::Linear& layer);

// True between use_packed_weight() and unpack_weight().
[[nodiscard]] bool has_packed_weight(const nn::Linear& layer);

}  // namespace quench::recipes
