#pragma once
// README.md of an export: model, quantization and its error.

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
  std::string title;
  std::string source;  // path or name; may be empty
  const nn::ModelConfig& config;
  const ExportFormat& format;
  DType dtype;
  const QuantizationRules* quantization = nullptr;  // null: high precision
  const std::vector<LayerReport>& layers;
  std::string perplexity_data;  // empty: not measured
  std::optional<double> perplexity_before, perplexity;
  std::uint64_t weight_bytes = 0;  // on disk
};

// With Hugging Face Hub metadata.
[[nodiscard]] std::string to_markdown(const ModelCard& card);

// "1.23 GB", "4.56 MB": decimal.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

// A card written by an export.
[[nodiscard]] bool is_model_card(const std::filesystem::path& file);

}  // namespace quench
