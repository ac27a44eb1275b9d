#pragma once
// A loaded model as a Hugging Face folder.

#include <string>

#include "apps/common.h"
#include "train/model_folder/export_folder.h"

namespace quench {

// Writes the model with its small files, under the tokenizer that is named or else found with the model, and says so
// on standard output. Throws what save_model_folder() throws.
void write_model(const LoadedModel& loaded, const std::string& named_tokenizer, double max_shard_gb,
                 const ExportTarget& target);

}  // namespace quench
