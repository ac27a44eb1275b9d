#pragma once
// Table of quantization methods: RTN, HQQ, GPTQ, AWQ, SmoothQuant. Each chooses codes, scales and zero points of a
// weight.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/methods/channel_scales.h"
#include "export/methods/gptq.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

// What methods let choose; each names the options that act on it.
struct MethodOptions {
  double damping = GptqOptions().damping;
  bool activation_order = GptqOptions().activation_order;
  double smoothing = 0.5;
};
inline constexpr std::string_view kDampingOption = "damping";
inline constexpr std::string_view kActivationOrderOption = "activation_order";
inline constexpr std::string_view kSmoothingOption = "smoothing";

struct WeightJob {
  const Tensor& weight;  // finite, f32 or bf16 [N,K] on the CPU
  const OperandScheme& scheme;
  std::string_view name;
  std::optional<DType> scale_dtype;         // of scales in high precision; absent: the weight's
  const InputStatistics* inputs = nullptr;  // of the layer, with a Gram matrix; set for calibrated methods
  MethodOptions options = {};
};

struct Quantizer {
  std::string_view name;
  std::string_view summary;
  // Why it cannot quantize so, or "".
  std::string (*problem)(const Scheme& scheme);
  // Throws what rtn() throws.
  QuantizedWeight (*quantize)(const WeightJob& job);
  // Factors of input channels that move into weights before; null: none.
  std::optional<Tensor> (*scales)(const ScaleChoiceArgs& args) = nullptr;
  bool scales_linear_outputs = false;  // those factors may also go into linear layers, not only into norms
  bool calibrated = false;             // needs the inputs of layers
  std::span<const std::string_view> options = {};
};

// The default first.
[[nodiscard]] std::span<const Quantizer> quantizers();
[[nodiscard]] std::vector<std::string> quantizer_names();
// Throws bad_config with the list of names for an unknown one; `key` names the option in the message.
[[nodiscard]] const Quantizer& require_quantizer(std::string_view name, std::string_view key);
// Throws bad_config unless the option acts on the method; `key` names it in the message.
void require_method_option(const Quantizer& quantizer, std::string_view option, std::string_view key);

}  // namespace quench
