#pragma once
// Formats of exported models: a line of the table each.

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

// Format outside the table: adapters alone, in the layout of PEFT.
inline constexpr std::string_view kPeftFormat = "peft";

struct ExportFormat {
  std::string_view name;
  std::string_view summary;
  bool quantized;                         // stores codes: a scheme is needed
  std::optional<DType> scale_dtype;       // of scales in high precision; absent: that of the weights
  std::string (*problem)(const Scheme&);  // why it cannot store a scheme, or ""
  Json (*write)(const ExportJob&);        // returns the quantization_config for config.json, or null
  std::string_view weights_file = {};     // its name, where the weights are not in safetensors files
  // Throws unsupported for a model that it cannot describe; null: it takes all.
  void (*require_model)(const nn::ModelConfig&) = nullptr;
  bool sparse = false;           // stores pruned weights alone
  bool experts = true;           // its readers take codes of a mixture's experts
  bool embeddings = false;       // may store the embedding table in codes,
  bool tied_embeddings = false;  // also where the head has the same one
};

// Bytes of the files of a written folder: of each tensor of a linear layer or table, codes with their scales, by the
// layer's name; and of all weights files together.
struct StoredBytes {
  std::map<std::string, std::uint64_t, std::less<>> layers;
  std::uint64_t files = 0;
};
[[nodiscard]] StoredBytes stored_bytes(const std::filesystem::path& folder);

[[nodiscard]] const ChoiceTable<ExportFormat>& export_formats();
// Throws bad_config with the list of names for an unknown one; `key` names the option in the message.
[[nodiscard]] const ExportFormat& require_export_format(std::string_view name, std::string_view key);
[[nodiscard]] std::vector<std::string> export_format_names();
// Whether a format other than safetensors keeps weights in a file of this name.
[[nodiscard]] bool is_format_file(std::string_view name);
// Throws bad_config unless format and scheme go together. `scheme` may be null.
void check_format_and_scheme(const ExportFormat& format, const Scheme* scheme);
// The same for all schemes of the rules; null: none.
void check_format_and_rules(const ExportFormat& format, const QuantizationRules* rules);
// Adds to the rules what the format alone decides.
void apply_format(const ExportFormat& format, QuantizationRules& rules);
// Throws unsupported where the rules quantize the table of a tied model, and readers of the format take it for the
// head's values.
void require_readable_table(const ExportFormat& format, const QuantizationRules& rules, const nn::ModelConfig& model);

}  // namespace quench
