#pragma once
// Table of export formats.

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
#include "nn/model_config.h"

namespace quench {

// Adapter-only format outside the table: PEFT layout.
inline constexpr std::string_view kPeftFormat = "peft";

struct ExportFormat {
  std::string_view name;
  std::string_view summary;
  bool quantized;                         // quantized: requires a scheme
  std::optional<DType> scale_dtype;       // dtype of high-precision scales; absent: that of the weights
  std::string (*problem)(const Scheme&);  // reason why a scheme is not supported, or ""
  Json (*write)(const ExportJob&);        // returns the quantization_config for config.json, or null
  std::string_view weights_file = {};     // file name if the weights are not in safetensors files
  // Throws unsupported for models that the format cannot describe; null: none.
  void (*require_model)(const nn::ModelConfig&) = nullptr;
  bool sparse = false;           // stores pruned weights only
  bool experts = true;           // its readers support quantized experts
  bool embeddings = false;       // may store a quantized embedding table
  bool tied_embeddings = false;  // also if tied to the LM head
};

// File sizes of a written folder in bytes: per layer (quantized values with scales), and all weights files together.
struct StoredBytes {
  std::map<std::string, std::uint64_t, std::less<>> layers;
  std::uint64_t files = 0;
};
[[nodiscard]] StoredBytes stored_bytes(const std::filesystem::path& folder);

[[nodiscard]] const ChoiceTable<ExportFormat>& export_formats();
// Throws bad_config with the list of names if unknown; `key` names the option in the message.
[[nodiscard]] const ExportFormat& require_export_format(std::string_view name, std::string_view key);
[[nodiscard]] std::vector<std::string> export_format_names();
// True if a non-safetensors format uses this name for its weights file.
[[nodiscard]] bool is_format_file(std::string_view name);
// Throws bad_config unless format and scheme are compatible. `scheme` may be null.
void check_format_and_scheme(const ExportFormat& format, const Scheme* scheme);
// Check of all schemes of the rules; null: none.
void check_format_and_rules(const ExportFormat& format, const QuantizationRules* rules);
// Adds the format's requirements to the rules.
void apply_format(const ExportFormat& format, QuantizationRules& rules);
// Throws unsupported if the rules quantize the table of a tied model whose readers use it unquantized as LM head.
void require_readable_table(const ExportFormat& format, const QuantizationRules& rules, const nn::ModelConfig& model);

}  // namespace quench
