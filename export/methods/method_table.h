#pragma once
// RTN, scale search, HQQ, GPTQ, AutoRound, AWQ, SmoothQuant: quantized values, scales and zero points of a weight.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "export/methods/channel_scales.h"
#include "export/methods/gptq.h"
#include "export/schemes/quantized_weight.h"

namespace quench {

// Each method lists those it uses.
struct MethodOptions {
  double damping = GptqOptions().damping;
  bool activation_order = GptqOptions().activation_order;
  double smoothing = 0.5;
  std::int64_t iterations = 200;  // AutoRound's steps of a decoder layer
  std::int64_t batch_size = 8;    // sequences of a step
};
inline constexpr std::string_view kDampingOption = "damping";
inline constexpr std::string_view kActivationOrderOption = "activation_order";
inline constexpr std::string_view kSmoothingOption = "smoothing";
inline constexpr std::string_view kIterationsOption = "iterations";
inline constexpr std::string_view kBatchSizeOption = "batch_size";

struct WeightJob {
  const Tensor& weight;  // finite, f32 or bf16 [N,K], CPU
  const OperandScheme& scheme;
  std::string_view name;
  std::optional<DType> scale_dtype;         // high-precision scales; absent: the weight's
  const InputStatistics* inputs = nullptr;  // for calibrated methods; with a Gram matrix unless they tune
  MethodOptions options = {};
  std::optional<float> shared_amax = {};   // rtn()
  std::span<const float> importance = {};  // rtn(): of columns [K], for GGUF types; empty: none
  Device device = {};                      // where kernels may run
};

struct Quantizer {
  std::string_view name;
  std::string_view summary;
  // Reason for refusal, or "".
  std::string (*problem)(const Scheme& scheme);
  // Throws like rtn().
  QuantizedWeight (*quantize)(const WeightJob& job);
  // Before quantization; null: none.
  std::optional<Tensor> (*scales)(const ScaleChoiceArgs& args) = nullptr;
  bool scales_linear_outputs = false;  // channel scales may be fused into linear layers, not only norms
  bool calibrated = false;             // requires data
  bool tunes_blocks = false;           // tune_block() (export/ptq/tune_block.h) in place of `quantize` where it can
  std::span<const std::string_view> options = {};
};

// Default first.
[[nodiscard]] std::span<const Quantizer> quantizers();
[[nodiscard]] std::vector<std::string> quantizer_names();
// Throws bad_config listing the names; `key`: option in the message.
[[nodiscard]] const Quantizer& require_quantizer(std::string_view name, std::string_view key);
// Throws bad_config if not used by the method; `key`: option in the message.
void require_method_option(const Quantizer& quantizer, std::string_view option, std::string_view key);

}  // namespace quench
