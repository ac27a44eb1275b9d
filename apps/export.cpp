// quench export: a training checkpoint or model folder as a deployable model folder.

#include <cstdio>

#include "apps/common.h"
#include "apps/verbs.h"
#include "apps/write_model.h"
#include "train/model_folder/peft_folder.h"
#include "train/run_folder/run_folder.h"

namespace quench {
namespace {

struct ExportOptions {
  std::string checkpoint;
  std::string output;
  std::string format = "hf";
  std::string dtype = "auto";
  std::string tokenizer;
  double max_shard_gb = 5;
  bool overwrite = false;
};

void write_adapter(const LoadedModel& loaded, const ExportTarget& target) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, loaded.adapters != nullptr,
                  "the checkpoint holds a whole model, no adapters: --format {} has nothing to write", kPeftFormat);
  save_adapter_folder(*loaded.model, *loaded.adapters, target,
                      {.dtype = loaded.model->options().dtype, .base = loaded.small_files.string()});
  std::printf("wrote %s (%zu adapted layers)\n", target.folder.c_str(), loaded.adapters->layers().size());
}

void run(const ExportOptions& o) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.format == "hf" || o.format == kPeftFormat,
                  "--format '{}' is not supported by this version; known: hf, {}", o.format, kPeftFormat);
  const std::filesystem::path source = o.checkpoint;
  ExportTarget target{.folder = o.output,
                      .overwrite = o.overwrite,
                      .sources = {source, checkpoint_folder_of(source)}};  // which may lie elsewhere
  require_export_target(target);                                           // before the model is read
  LoadedModel loaded = load_model(o.checkpoint, "cpu", o.dtype);
  if (o.format == kPeftFormat) return write_adapter(loaded, target);
  target.kept = {loaded.small_files, loaded.tokenizer, o.tokenizer};
  merge_adapters(loaded);
  write_model(loaded, o.tokenizer, o.max_shard_gb, target);
}

}  // namespace

void add_export_verb(CLI::App& app) {
  auto o = std::make_shared<ExportOptions>();
  CLI::App* verb = app.add_subcommand("export", "Write a training checkpoint as a Hugging Face model folder");
  verb->footer("Example: quench export --checkpoint runs/demo --format hf --output models/demo");
  verb->add_option("--checkpoint,--model", o->checkpoint, "Checkpoint (step-N), run folder, or model folder")
      ->required();
  verb->add_option("--output", o->output, "Folder to write; one that holds nothing but an export is replaced")
      ->required();
  verb->add_flag("--overwrite", o->overwrite,
                 "Write beside files of other kinds, replacing only files of the same names");
  verb->add_option("--format", o->format, "hf: a model, adapters merged; peft: the adapters alone")
      ->capture_default_str();
  verb->add_option("--dtype", o->dtype, "auto (as trained), f32 or bf16")->capture_default_str();
  verb->add_option("--tokenizer", o->tokenizer, "Tokenizer file or folder, or \"bytes\"; default: the run's");
  verb->add_option("--max-shard-gb", o->max_shard_gb, "Largest file, in gigabytes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->callback([o] { run(*o); });
}

}  // namespace quench
