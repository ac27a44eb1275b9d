#pragma once
// Writer of a loaded model as a folder.

#include <optional>
#include <string>

#include "apps/common.h"
#include "export/table/unfit_scheme.h"
#include "train/model_folder/model_folder.h"

namespace quench {

// Deviations from the dense Hugging Face layout in the model's dtype.
struct WriteStyle {
  const ExportFormat* format = nullptr;
  std::optional<QuantizationRules> quantization;
  std::optional<DType> dtype;
  std::optional<UnfitScheme> unfit;  // for the result
  bool json = false;                 // result as JSON on stdout
  std::string source;                // for the model card
  TrainingFacts training = {};       // for the model card
  std::function<double(nn::CausalLm&)> perplexity;
  std::string perplexity_data;
};

// Writes the model with its small files and the named or detected tokenizer, and prints a summary. Throws like
// save_model_folder().
void write_model(const LoadedModel& loaded, const std::string& named_tokenizer, double max_shard_gb,
                 const ExportTarget& target, const WriteStyle& style = {});

}  // namespace quench
