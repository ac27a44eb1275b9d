#pragma once
// README.md of an exported folder: what the model is, how it was quantized and what that cost.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export/ptq/quantize_model.h"
#include "export/table/format.h"

namespace quench {

inline constexpr std::string_view kModelCardName = "README.md";

struct ModelCard {
  std::string title;   // of the folder
  std::string source;  // the model that was exported: a path or a name; may be empty
  const nn::ModelConfig& config;
  const ExportFormat& format;
  DType dtype;
  const QuantizationRules* quantization = nullptr;  // null: high precision
  const std::vector<LayerReport>& layers;
  std::string perplexity_data;  // what the perplexities were measured on; empty: they were not
  std::optional<double> perplexity_before, perplexity;
  std::uint64_t weight_bytes = 0;  // on disk
};

// Markdown with the metadata block that the Hugging Face Hub reads.
[[nodiscard]] std::string to_markdown(const ModelCard& card);

// "1.23 GB" or "4.56 MB": powers of ten, as file managers count.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

// Whether the file is a card that an export wrote, and not somebody's own.
[[nodiscard]] bool is_model_card(const std::filesystem::path& file);

}  // namespace quench
