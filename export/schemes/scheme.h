#pragma once
// Quantization schemes: storage of weights and GEMM inputs. A scheme is a table entry; writers declare support by its
// fields, not its name.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/number/affine_int.h"
#include "core/number/element_format.h"
#include "export/schemes/gguf_blocks.h"

namespace quench {

// Granularity of scales.
enum class ScaleSharing : std::uint8_t {
  tensor,
  row,    // per output channel of a weight, per token of an input
  group,  // group_size elements of a row
  block,  // group_size x group_size elements of a weight
};
[[nodiscard]] std::string_view to_string(ScaleSharing sharing) noexcept;

// Storage of scales.
enum class ScaleForm : std::uint8_t {
  high_precision,  // model dtype
  e8m0,            // powers of two: MX
  e4m3_two_level,  // e4m3 with one f32 scale per tensor: NVFP4
};

// Quantization of one GEMM operand.
struct OperandScheme {
  std::optional<ElementFormat> element;        // absent: integers
  int bits = 8;                                // per element
  IntMapping mapping = IntMapping::symmetric;  // integers only
  ScaleSharing sharing = ScaleSharing::row;
  std::int64_t group_size = 0;  // 0 unless sharing is group or block
  ScaleForm scale = ScaleForm::high_precision;
  std::optional<BlockType> blocks;  // weights only: GGUF block type, which implies all other fields
  bool calibrated = false;          // inputs: static scale from calibration; false: dynamic

  [[nodiscard]] bool symmetric() const noexcept { return element || mapping == IntMapping::symmetric; }
  friend bool operator==(const OperandScheme&, const OperandScheme&) = default;
};

// True if an input scheme needs a calibrated number: a static scale, or NVFP4's global scale.
[[nodiscard]] bool needs_input_scale(const OperandScheme& inputs) noexcept;
// That number for inputs of this amax: the multiplier of scaled values. Never 0.
[[nodiscard]] float input_scale(const OperandScheme& inputs, float amax) noexcept;

struct Scheme {
  std::string name;
  std::string summary;
  OperandScheme weights;
  std::optional<OperandScheme> inputs;  // absent: unquantized

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

[[nodiscard]] std::span<const Scheme> scheme_table();
// Null for an unknown name.
[[nodiscard]] const Scheme* find_scheme(std::string_view name);
// Throws bad_config with similar names (export/schemes/scheme_hint.h) and the list of names if unknown; `key` names the
// option in the message.
[[nodiscard]] const Scheme& require_scheme(std::string_view name, std::string_view key);
// Names for help and messages, by family: "int<2-8>_weight_only[_g32|_g64|_g128][_asym], ...".
[[nodiscard]] std::string scheme_names();

// Reason why a weight [N,K], or the inputs [.., K] of its GEMMs, cannot be quantized, or "".
[[nodiscard]] std::string shape_problem(const OperandScheme& weights, std::int64_t rows, std::int64_t columns,
                                        const std::optional<OperandScheme>& inputs = std::nullopt);

// Bits per weight, including scales (for a bf16 model), for estimates.
[[nodiscard]] double bits_per_weight(const OperandScheme& weights, std::int64_t columns);

}  // namespace quench
