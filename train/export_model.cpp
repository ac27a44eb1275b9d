#include "train/export_model.h"

#include "train/hf/model_folder.h"
#include "train/metrics/run_files.h"

namespace quench {

namespace fs = std::filesystem;

ExportTarget export_target(const RunConfig& config) {
  ExportTarget target{.folder = config.export_model->folder,
                      .overwrite = config.export_model->overwrite,
                      .sources = {fs::path(config.run.folder) / run_files::kModelFolder},
                      .kept = {config.run.folder, config.checkpoint.folder, config.metrics.folder, config.data.cache,
                               config.model.path, config.data.tokenizer}};
  for (const std::vector<DataSource>* data : {&config.data.train, &config.data.validation})
    for (const DataSource& source : *data) target.kept.emplace_back(source.path);
  return target;
}

void export_model(const nn::CausalLm& model, const RunConfig& config, const RunModel& description) {
  const std::filesystem::path kept = std::filesystem::path(config.run.folder) / run_files::kModelFolder;
  ModelFolderOptions options;
  options.dtype = config.training.dtype;
  options.config = &description.config;
  options.small_files = {.model = kept,
                         .tokenizer_folder = kept,
                         .tokenizer = description.tokenizer.get(),
                         .generation_ids = description.generation_ids};
  save_model_folder(model, export_target(config), options);
}

}  // namespace quench
