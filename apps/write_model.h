#pragma once
// A loaded model as a folder.

#include <optional>
#include <string>

#include "apps/common.h"
#include "train/model_folder/model_folder.h"

namespace quench {

// How, where it is not Hugging Face's dense layout in the model's own dtype.
struct WriteStyle {
  const ExportFormat* format = nullptr;
  std::optional<QuantizationRules> quantization;
  std::optional<DType> dtype;
  bool json = false;   // the result on standard output
  std::string source;  // for the model card
  std::function<double(nn::CausalLm&)> perplexity;
  std::string perplexity_data;
};

// Writes the model with its small files, under the tokenizer that is named or else found with the model, and says so
// on standard output. Throws what save_model_folder() throws.
void write_model(const LoadedModel& loaded, const std::string& named_tokenizer, double max_shard_gb,
                 const ExportTarget& target, const WriteStyle& style = {});

}  // namespace quench
