#pragma once
// Storage of weights and GEMM inputs. Writers declare support by a scheme's fields, not its name.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/gguf_types/block_tensors.h"
#include "core/number/affine_int.h"
#include "core/number/element_format.h"
#include "export/mixes/mix.h"

namespace quench {

// Sharing of scales.
enum class ScaleSharing : std::uint8_t {
  tensor,
  row,    // per output channel, or per token
  group,  // elements of a row
  block,  // group_size x group_size elements of a weight
};

// Storage of scales.
enum class ScaleForm : std::uint8_t {
  high_precision,  // model dtype
  e8m0,            // powers of two: MX
  e4m3_two_level,  // e4m3, one f32 per tensor: NVFP4
};

// One GEMM operand.
struct OperandScheme {
  std::optional<ElementFormat> element;        // absent: integers
  int bits = 8;                                // as stored
  IntMapping mapping = IntMapping::symmetric;  // integers
  ScaleSharing sharing = ScaleSharing::row;
  std::int64_t group_size = 0;  // else 0
  ScaleForm scale = ScaleForm::high_precision;
  std::optional<BlockType> blocks;  // weights: GGUF, implies all other fields
  bool calibrated = false;          // inputs: static scale; false: dynamic

  // Without zero points.
  [[nodiscard]] bool symmetric() const noexcept {
    return element || mapping == IntMapping::symmetric || has_few_levels(mapping);
  }
  friend bool operator==(const OperandScheme&, const OperandScheme&) = default;
};

// Static scale, or NVFP4's global scale.
[[nodiscard]] bool needs_input_scale(const OperandScheme& inputs) noexcept;
// For inputs of this amax: multiplier of scaled values. Never 0.
[[nodiscard]] float input_scale(const OperandScheme& inputs, float amax) noexcept;

struct Scheme {
  std::string name;
  std::string summary;
  OperandScheme weights;
  std::optional<OperandScheme> inputs;  // absent: unquantized
  // GGUF type of each tensor of a whole file, embedding table and head included; `weights` is the type of most. In a
  // rule for layers the scheme is that type. Null: no GGUF type.
  const GgufMix* mix = nullptr;

  friend bool operator==(const Scheme&, const Scheme&) = default;
};

// In documentation order.
[[nodiscard]] std::span<const Scheme> scheme_table();
// Null if unknown.
[[nodiscard]] const Scheme* find_scheme(std::string_view name);
// Throws bad_config with similar names (scheme_hint.h) and the list; `key`: option in the message.
[[nodiscard]] const Scheme& require_scheme(std::string_view name, std::string_view key);
// A scheme for layers: throws bad_config also for one that is a whole file's alone, and no type ("q4_k_m").
[[nodiscard]] const Scheme& require_layer_scheme(std::string_view name, std::string_view key);
// Scheme of a GGUF type by ggml's name; null: it is not written.
[[nodiscard]] const Scheme* find_type_scheme(std::string_view type);
// `scheme`, or the scheme of the GGUF type that takes its place in llama.cpp where its blocks do not divide `columns`
// (fallback_type()). Null if that does not fit either.
[[nodiscard]] const Scheme* fitting_scheme(const Scheme& scheme, std::int64_t columns);
// By family: "int<2-8>_weight_only[_g32|_g64|_g128][_asym], ...".
[[nodiscard]] std::string scheme_names();

// Reason for refusal of a weight [N,K], or of inputs [.., K] of its GEMMs, or "".
[[nodiscard]] std::string shape_problem(const OperandScheme& weights, std::int64_t rows, std::int64_t columns,
                                        const std::optional<OperandScheme>& inputs = std::nullopt);

// Nearness for hints, 0: as near as it gets; by bits, inputs, element kind, scales and groups.
[[nodiscard]] int scheme_distance(const Scheme& a, const Scheme& b);

// With scales (for a bf16 model).
[[nodiscard]] double bits_per_weight(const OperandScheme& weights, std::int64_t columns);

}  // namespace quench
