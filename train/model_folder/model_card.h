#pragma once
// README.md of an export: model, training, quantization and its error.

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "export/ptq/quantize_model.h"
#include "export/table/format.h"

namespace quench {

inline constexpr std::string_view kModelCardName = "README.md";

// Training of a model.
struct TrainingFacts {
  std::string base = {};           // name of the model that it began with; empty: none
  std::string rows = {};           // Markdown table rows; empty: not trained here, or unknown
  const Scheme* scheme = nullptr;  // whose codes it trained; null: none

  void add(std::string_view label, std::string_view text);
};

// Facts of a folder with a model card, without the scheme; else its name as the base.
[[nodiscard]] TrainingFacts training_in(const std::filesystem::path& folder);
// Without the folders around a local path: "org/name" of the Hub's cache, the run of "run/export", else the last part
// without .gguf.
[[nodiscard]] std::string model_name(const std::filesystem::path& path);

struct ModelCard {
  std::string title;
  std::string source = {};  // path or name; may be empty
  const TrainingFacts& training;
  const nn::ModelConfig& config;
  const ExportFormat& format;
  DType dtype;
  const QuantizationRules* quantization = nullptr;  // null: high precision
  bool rotated = false;                             // rotate_model()
  std::string kv_cache = {};                        // KV cache of readers; empty: unquantized
  const std::vector<LayerReport>& layers;
  std::string perplexity_data = {};  // empty: not measured
  std::optional<double> perplexity_before, perplexity;
  std::uint64_t weight_bytes = 0;  // on disk
};

// With Hugging Face Hub metadata.
[[nodiscard]] std::string to_markdown(const ModelCard& card);
// Card of a PEFT folder. `adapters`: one line.
[[nodiscard]] std::string adapter_card(std::string_view title, std::string_view adapters,
                                       const TrainingFacts& training);

// "1.23 GB", "4.56 MB": decimal.
[[nodiscard]] std::string size_text(std::uint64_t bytes);

// A card written by an export.
[[nodiscard]] bool is_model_card(const std::filesystem::path& file);

}  // namespace quench
