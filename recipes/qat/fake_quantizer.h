#pragma once
// Fake quantization of one operand of a linear layer: its values as they are after being stored in few bits.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/number/element_format.h"
#include "core/number/sparsity_2_4.h"
#include "core/ops/quantize/quantize_int.h"
#include "core/tensor/tensor.h"

namespace quench::recipes {

// How an operand [R,C] is quantized along its last axis, which a product contracts over.
struct FakeFormat {
  enum class Kind {
    none,     // high precision
    integer,  // `integers`
    float8,   // e4m3 with scale amax / 448 of a row
    mx,       // blocks of 32 of `element` with E8M0 scales, rule rceil
    nvfp4,    // blocks of 16 e2m1 with e4m3 scales and a scale of the tensor
  };
  Kind kind = Kind::none;
  IntQuantOptions integers = {};
  ElementFormat element = ElementFormat::e2m1;
  std::optional<Sparsity24> sparsity = std::nullopt;  // of weights: what stays is quantized, gradients reach all

  struct Problem {
    std::string reason;
    std::string_view key = {};  // of the config, where one is the reason
  };
  // Why an operand of this shape cannot be quantized so, if it cannot. Rows count for weights only. `key` is what
  // chose the size of groups.
  [[nodiscard]] std::optional<Problem> problem(std::int64_t rows, std::int64_t columns,
                                               std::string_view key = "recipe.group_size") const;
};

// `values` as they come back from their codes. `mask` of integers, whose range clips some elements: where the gradient
// passes (core/ops/quantize/quantize_int.h); undefined for formats that clip none.
struct FakeQuantized {
  Tensor values;
  Tensor mask;
};

// Bit-equal to quantizing with the ops that exports use, and dequantizing. x is f32 or bf16 [R,C]; without `with_mask`
// no mask is made.
// `scales`, of integers with a symmetric mapping: f32 [R, groups], given; undefined: they follow from x.
[[nodiscard]] FakeQuantized fake_quantize(const Tensor& x, const FakeFormat& format, bool with_mask,
                                          const Tensor& scales = {});

// The same of that many matrices of the same size, one behind the other in x, each by itself.
[[nodiscard]] FakeQuantized fake_quantize_each(const Tensor& x, std::int64_t matrices, const FakeFormat& format,
                                               bool with_mask);

// dx = 0 where the mask has 0; nothing for an undefined mask.
void stop_gradient(const Tensor& dx, const Tensor& mask);

}  // namespace quench::recipes
