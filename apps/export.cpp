// quench export: a training checkpoint or model folder as a deployable model folder.

#include <cstdio>

#include "apps/common.h"
#include "apps/verbs.h"
#include "core/system/log.h"
#include "train/model_folder/model_folder.h"
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

void run(const ExportOptions& o) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, o.format == "hf", "--format '{}' is not supported by this version; known: hf",
                  o.format);
  const std::filesystem::path source = o.checkpoint;
  ExportTarget target{.folder = o.output,
                      .overwrite = o.overwrite,
                      .sources = {source, checkpoint_folder_of(source)}};  // which may lie elsewhere
  require_export_target(target);                                           // before the model is read
  const LoadedModel loaded = load_model(o.checkpoint, "cpu", o.dtype);
  target.kept = {loaded.small_files, loaded.tokenizer, o.tokenizer};
  ModelFolderOptions options;
  options.dtype = loaded.model->options().dtype;
  options.max_shard_bytes = static_cast<std::int64_t>(o.max_shard_gb * 1e9);
  const std::unique_ptr<Tokenizer> tokenizer = find_model_tokenizer(loaded, o.tokenizer);
  const TokenIdChoice ids = model_token_ids(loaded, tokenizer.get());
  nn::ModelConfig config = loaded.config;
  if (tokenizer != nullptr || loaded.small_files.empty()) set_token_ids(config, ids.config);
  options.config = &config;
  // A tokenizer that is named brings its own small files, if it is a folder.
  std::filesystem::path tokenizer_folder = o.tokenizer.empty() ? loaded.tokenizer : o.tokenizer;
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
  std::printf("wrote %s (%s, %lld parameters)\n", o.output.c_str(), std::string(to_string(options.dtype)).c_str(),
              static_cast<long long>(loaded.config.parameter_count()));
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
  verb->add_option("--format", o->format, "hf")->capture_default_str();
  verb->add_option("--dtype", o->dtype, "auto (as trained), f32 or bf16")->capture_default_str();
  verb->add_option("--tokenizer", o->tokenizer, "Tokenizer file or folder, or \"bytes\"; default: the run's");
  verb->add_option("--max-shard-gb", o->max_shard_gb, "Largest file, in gigabytes")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  verb->callback([o] { run(*o); });
}

}  // namespace quench
