#pragma once
// Quantization schemes: values that say how weights, and the inputs of products with them, are stored and served. A
// scheme is a line of the table; writers declare those they can store; names are never compared.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/number/affine_int.h"
#include "core/number/element_format.h"
#include "export/schemes/gguf_blocks.h"

namespace quench {

// Which elements share a scale.
enum class ScaleSharing : std::uint8_t {
  tensor,
  row,    // of a weight: an output channel; of an input: a token
  group,  // group_size elements of a row
  block,  // group_size x group_size elements of a weight
};
[[nodiscard]] std::string_view to_string(ScaleSharing sharing) noexcept;

// How scales are stored.
enum class ScaleForm : std::uint8_t {
  high_precision,  // in the dtype of the model
  e8m0,            // powers of two: MX
  e4m3_two_level,  // e4m3, and one f32 scale for the whole tensor: NVFP4
};

// How one operand of a product is quantized.
struct OperandScheme {
  std::optional<ElementFormat> element;        // absent: integers
  int bits = 8;                                // of an element
  IntMapping mapping = IntMapping::symmetric;  // of integers
  ScaleSharing sharing = ScaleSharing::row;
  std::int64_t group_size = 0;  // 0 unless sharing is group or block
  ScaleForm scale = ScaleForm::high_precision;
  std::optional<BlockType> blocks;  // of weights: blocks of GGUF, which nothing else here describes
  bool calibrated = false;          // of inputs: one scale, found before; false: made for each input

  [[nodiscard]] bool symmetric() const noexcept { return element || mapping == IntMapping::symmetric; }
  friend bool operator==(const OperandScheme&, const OperandScheme&) = default;
};

// Whether an input's scheme needs a number that calibration finds: the scale, or that of NVFP4's block scales.
[[nodiscard]] bool needs_input_scale(const OperandScheme& inputs) noexcept;
// That number for inputs up to this magnitude: what their scaled values are multiplied by. Never 0.
[[nodiscard]] float input_scale(const OperandScheme& inputs, float amax) noexcept;

struct Scheme {
  std::string name;
  std::string summary;
  OperandScheme weights;
  std::optional<OperandScheme> inputs;  // absent: high precision

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

[[nodiscard]] std::span<const Scheme> scheme_table();
// Null for an unknown name.
[[nodiscard]] const Scheme* find_scheme(std::string_view name);
// Throws bad_config with similar names (export/schemes/scheme_hint.h) and the list of names for an unknown one; `key`
// names the option in the message.
[[nodiscard]] const Scheme& require_scheme(std::string_view name, std::string_view key);
// Names for help and messages, those of a family written as one: "int<2-8>_weight_only[_g32|_g64|_g128][_asym], ...".
[[nodiscard]] std::string scheme_names();

// Why a weight [N,K] cannot be quantized so, or the inputs [.., K] of its products, or "".
[[nodiscard]] std::string shape_problem(const OperandScheme& weights, std::int64_t rows, std::int64_t columns,
                                        const std::optional<OperandScheme>& inputs = std::nullopt);

// Bits that an element of a weight takes, scales included (of a model in bf16), for estimates.
[[nodiscard]] double bits_per_weight(const OperandScheme& weights, std::int64_t columns);

}  // namespace quench
