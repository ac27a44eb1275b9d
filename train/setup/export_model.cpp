#include "train/setup/export_model.h"

#include "distributed/fsdp/gather_parameter.h"
#include "recipes/lora/stored_base.h"
#include "train/metrics/run_files.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/run_folder/run_outputs.h"

namespace quench {

void export_model(nn::CausalLm& model, const recipes::Adapters* adapters, const RunConfig& config,
                  const RunModel& description, const distributed::Ranks* ranks) {
  if (config.export_model->format == kPeftFormat) {
    QUENCH_CHECK(adapters != nullptr, "export.format {} without adapters", kPeftFormat);
    return save_adapter_folder(model, *adapters, export_target(config),
                               {.dtype = config.training.dtype, .base = config.model.path});
  }
  recipes::make_dense(model);
  if (adapters != nullptr) adapters->merge();
  const std::filesystem::path kept = std::filesystem::path(config.run.folder) / run_files::kModelFolder;
  ModelFolderOptions options;
  options.dtype = config.training.dtype;
  options.config = &description.config;
  options.small_files = {.model = kept,
                         .tokenizer_folder = kept,
                         .tokenizer = description.tokenizer.get(),
                         .generation_ids = description.generation_ids};
  if (ranks == nullptr) {
    save_model_folder(model, export_target(config), options);
    return;
  }
  distributed::with_whole_parameters(model, *ranks, [&](const auto& whole) {
    options.whole = whole;
    save_model_folder(model, export_target(config), options);
  });
}

}  // namespace quench
