#include "apps/write_model.h"

#include <cstdio>

#include "core/system/log.h"
#include "train/model_folder/model_folder.h"

namespace quench {

void write_model(const LoadedModel& loaded, const std::string& named_tokenizer, double max_shard_gb,
                 const ExportTarget& target) {
  ModelFolderOptions options;
  options.dtype = loaded.model->options().dtype;
  options.max_shard_bytes = static_cast<std::int64_t>(max_shard_gb * 1e9);
  const std::unique_ptr<Tokenizer> tokenizer = find_model_tokenizer(loaded, named_tokenizer);
  const TokenIdChoice ids = model_token_ids(loaded, tokenizer.get());
  nn::ModelConfig config = loaded.config;
  if (tokenizer != nullptr || loaded.small_files.empty()) set_token_ids(config, ids.config);
  options.config = &config;
  // A tokenizer that is named brings its own small files, if it is a folder.
  std::filesystem::path tokenizer_folder = named_tokenizer.empty() ? loaded.tokenizer : named_tokenizer;
  if (tokenizer_folder.empty()) {
    tokenizer_folder = loaded.small_files;
  } else if (!std::filesystem::is_directory(tokenizer_folder)) {
    tokenizer_folder.clear();
  }
  options.small_files = {.model = loaded.small_files,
                         .tokenizer_folder = tokenizer_folder,
                         .tokenizer = tokenizer.get(),
                         .generation_ids = ids.generation};
  if (tokenizer == nullptr && !loaded.missing.empty())
    QUENCH_LOG_WARN("{}: the export has no tokenizer; name one with --tokenizer", loaded.missing);
  save_model_folder(*loaded.model, target, options);
  std::printf("wrote %s (%s, %lld parameters)\n", target.folder.c_str(), std::string(to_string(options.dtype)).c_str(),
              static_cast<long long>(loaded.config.parameter_count()));
}

}  // namespace quench
