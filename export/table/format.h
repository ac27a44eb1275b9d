#pragma once
// Export formats.

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/json/json.h"
#include "core/system/choice_table.h"
#include "export/formats/export_job.h"
#include "export/ptq/quantize_model.h"
#include "nn/spec/model_config.h"

namespace quench {

// Format of adapters alone: PEFT's folder. Outside the table.
inline constexpr std::string_view kPeftFormat = "peft";
// Format of adapters alone: a GGUF file for llama.cpp's --lora. Outside the table.
inline constexpr std::string_view kGgufLoraFormat = "gguf-lora";
// All formats of adapters alone.
inline constexpr std::array kAdapterFormats = {kPeftFormat, kGgufLoraFormat};
// Whether a format is one of kAdapterFormats.
[[nodiscard]] constexpr bool is_adapter_format(std::string_view name) {
  return name == kPeftFormat || name == kGgufLoraFormat;
}

// Entry of the table of export formats.
struct ExportFormat {
  std::string_view name;
  std::string_view summary;
  bool quantized;                         // requires a scheme
  std::optional<DType> scale_dtype;       // high-precision scales; absent: the weights'
  std::string (*problem)(const Scheme&);  // reason for refusal, or ""
  Json (*write)(const ExportJob&);        // returns the quantization_config, or null
  std::string_view weights_file = {};     // unless safetensors
  // Throws unsupported if not describable; null: any.
  void (*require_model)(const nn::ModelConfig&) = nullptr;
  bool sparse = false;           // pruned weights only
  bool experts = true;           // quantized experts
  bool embeddings = false;       // quantized embedding table
  bool tied_embeddings = false;  // also if tied to the LM head
  // Optional: sets factors of tensors (ModelTensor::factor), and the config to that of the folder.
  void (*fold)(std::vector<ModelTensor>& tensors, nn::ModelConfig& config) = nullptr;
  // Optional: reason why the format keeps a layer in high precision, or "".
  std::string_view (*kept)(const ModelTensor& tensor) = nullptr;
  // Bytes that a tokenizer's files in `folder` take in the weights file; null: none.
  std::int64_t (*tokenizer_bytes)(const std::filesystem::path& folder, const nn::ModelConfig& config) = nullptr;
  bool mtp = false;           // writes MTP layers
  bool fused_experts = true;  // the writer gets experts as the family stores them; false: one by one
  bool kv_cache = false;      // stores scales of a quantized KV cache (ExportJob::kv_cache), also without a scheme
};

// Bytes per layer (with scales), and of all weights files.
struct StoredBytes {
  std::map<std::string, std::uint64_t, std::less<>> layers;
  std::uint64_t files = 0;
};
// By the headers of the weights files; throws the errors of their readers.
[[nodiscard]] StoredBytes stored_bytes(const std::filesystem::path& folder);

// Default first.
[[nodiscard]] const ChoiceTable<ExportFormat>& export_formats();
// Throws bad_config listing the names; `key`: option in the message.
[[nodiscard]] const ExportFormat& require_export_format(std::string_view name, std::string_view key);
// The table's names, without kAdapterFormats.
[[nodiscard]] std::vector<std::string> export_format_names();
// Weights file of a non-safetensors format.
[[nodiscard]] bool is_format_file(std::string_view name);
// Throws bad_config if incompatible. `scheme` may be null. `with_cache`: the folder quantizes readers' KV caches.
void check_format_and_scheme(const ExportFormat& format, const Scheme* scheme, bool with_cache = false);
// All schemes; null: none.
void check_format_and_rules(const ExportFormat& format, const QuantizationRules* rules, bool with_cache = false);
// Sets the format's scale dtype and support of experts in `rules`, and the types that a mix chooses for `tensors`
// (choose_mixed_types()).
void apply_format(const ExportFormat& format, QuantizationRules& rules, const std::vector<ModelTensor>& tensors,
                  const nn::ModelConfig& model);
// Throws unsupported if the rules quantize the table of a tied model whose readers use it unquantized as LM head.
void require_readable_table(const ExportFormat& format, const QuantizationRules& rules, const nn::ModelConfig& model);

}  // namespace quench
