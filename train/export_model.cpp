#include "train/export_model.h"

#include "train/hf/model_folder.h"

namespace quench {

void export_model(const nn::CausalLm& model, const RunConfig& config, const Tokenizer* tokenizer,
                  const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  ModelFolderOptions options;
  options.dtype = config.training.dtype;
  const fs::path named = config.data.tokenizer;
  if (!named.empty() && fs::is_directory(named)) {
    options.carry_from = named;
  } else if (!named.empty() && fs::is_regular_file(named)) {
    options.carry_from = named.has_parent_path() ? named.parent_path() : fs::path(".");
  } else if (named.empty()) {
    options.carry_from = config.model.path;
  }
  options.tokenizer = tokenizer;
  save_model_folder(model, folder, options);
}

}  // namespace quench
