#pragma once
// Fake quantization of tensors, with masks of clipped elements.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/gguf_types/block_format.h"
#include "core/number/element_format.h"
#include "core/number/sparsity_2_4.h"
#include "core/ops/quantize/quantize_int.h"
#include "core/tensor/tensor.h"

namespace quench::recipes {

// Rows in the grid of one GGUF type, or as they are.
struct GgufRows {
  std::int64_t rows = 0;  // 0: all
  BlockType type = BlockType::q4_0;
  bool is_whole = false;  // in high precision
  friend bool operator==(const GgufRows&, const GgufRows&) = default;
};
inline constexpr std::size_t kMostGgufParts = 4;  // parts of a fused layer

// Fake quantization of [R,C] along its last axis, the reduction axis.
struct FakeFormat {
  enum class Kind {
    none,     // high precision
    integer,  // `integers`
    float8,   // e4m3 with scale amax / 448 per row
    mx,       // blocks of 32 of `element` with E8M0 scales, rule rceil
    nvfp4,    // blocks of 16 e2m1 with e4m3 scales and a tensorwise scale
    gguf,     // `gguf`: GGUF types by rows, over and over for each of several matrices
  };
  Kind kind = Kind::none;
  IntQuantOptions integers = {};
  ElementFormat element = ElementFormat::e2m1;
  std::array<GgufRows, kMostGgufParts> gguf = {};
  std::size_t gguf_parts = 0;
  // Pattern of weights; all elements get gradients.
  std::optional<Sparsity24> sparsity = std::nullopt;

  struct Problem {
    std::string reason;
    std::string_view key = {};
  };
  // Reason, if not supported. Rows matter for weights only. `key`: config key of the group size.
  [[nodiscard]] std::optional<Problem> problem(std::int64_t rows, std::int64_t columns,
                                               std::string_view key = "recipe.group_size") const;
  // "q4_k, q6_k", "int4 in groups of 32", "int8 by row"; for layers' names.
  [[nodiscard]] std::string describe() const;
};

// `mask`: 0 where the integer range clips, so no gradient; undefined for formats that do not clip.
struct FakeQuantized {
  Tensor values;
  Tensor mask;
};

// Bit-identical to the export's quantize and dequantize ops, in the dtype of x. x f32 or bf16 [R,C]. `scales` f32 [R,
// groups], for integers without zero points; undefined: from x.
[[nodiscard]] FakeQuantized fake_quantize(const Tensor& x, const FakeFormat& format, bool with_mask,
                                          const Tensor& scales = {});

// Matrices stacked in x, each quantized separately.
[[nodiscard]] FakeQuantized fake_quantize_each(const Tensor& x, std::int64_t matrices, const FakeFormat& format,
                                               bool with_mask);

// dx = 0 where the mask is 0; no-op for an undefined mask.
void stop_gradient(const Tensor& dx, const Tensor& mask);

}  // namespace quench::recipes
