// quench merge-lora: merges an adapter's updates into the model's weights.

#include "apps/common.h"
#include "apps/verbs.h"
#include "apps/write_model.h"
#include "core/system/log.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_source/run_layout.h"
#include "train/setup/adapter_setup.h"

namespace quench {
namespace {

struct MergeOptions {
  std::string model;
  std::string adapter;
  std::string output;
  std::string dtype = "auto";
  std::string tokenizer;
  double max_shard_gb = 5;
  bool overwrite = false;
  bool json = false;
};

// Warns if the base weights differ from those recorded in the adapter's folder.
void warn_of_other_base(const LoadedModel& loaded, const MergeOptions& o) {
  if (o.adapter.empty() || loaded.quantized || loaded.adapters != nullptr) return;
  const AdapterBase base = adapter_base(o.adapter);
  const DType stored = loaded.config.dtype, dtype = loaded.model->options().dtype;
  // The hash of the trained weights cannot be verified against a narrower dtype.
  const bool narrower = dtype == DType::bf16 && base.dtype == DType::f32 && stored != DType::bf16;
  if (base.hash.empty() || narrower) return;
  const std::string hash = base_hash_as(*loaded.model, base.dtype, loaded.stored_vocabulary);
  if (hash != base.hash)
    QUENCH_LOG_WARN(
        "the adapter in {} was trained over other weights than those in {} (hash {}, here {}): the merged model "
        "differs from the trained one",
        o.adapter, o.model, base.hash, hash);
}

void run(const MergeOptions& o) {
  const std::filesystem::path source = o.model;
  ExportTarget target{
      .folder = o.output, .overwrite = o.overwrite, .sources = {source, checkpoint_folder_of(source), o.adapter}};
  if (o.adapter.empty()) target.sources.pop_back();
  require_export_target(target);  // before reading the model
  LoadedModel loaded = load_model(o.model, "cpu", o.dtype, false, {}, o.adapter, MtpLayers::all);
  warn_of_other_base(loaded, o);
  use_adapter(loaded, o.adapter);
  QUENCH_CHECK_AS(ErrorCode::bad_config, loaded.adapters != nullptr,
                  "{} holds no adapters of its own; name a folder with --adapter", o.model);
  target.kept = {loaded.small_files, loaded.tokenizer, o.tokenizer};
  merge_adapters(loaded);
  WriteStyle style{.json = o.json, .source = o.model};
  style.training = training_of(o.adapter.empty() ? o.model : o.adapter);
  if (style.training.rows.empty()) style.training.base = model_name(o.model);  // an adapter of another program
  write_model(loaded, o.tokenizer, o.max_shard_gb, target, style);
}

}  // namespace

void add_merge_lora_verb(const Command& app) {
  auto o = std::make_shared<MergeOptions>();
  const Command verb = app.add_command("merge-lora", "Add a LoRA adapter to a model's weights");
  verb.footer("Example: quench merge-lora --model models/llama --adapter runs/x/export --output models/llama-x");
  verb.add_option("--model", o->model, "Model folder, checkpoint or run folder; one of a LoRA run has its adapter")
      .required();
  verb.add_option("--adapter", o->adapter, "PEFT adapter folder");
  verb.add_option("--output", o->output, "Folder to write; an earlier export is replaced").required();
  verb.add_flag("--overwrite", o->overwrite,
                "Write into a folder with other files, replacing only files of the same names");
  verb.add_option("--dtype", o->dtype, "auto (the model's), f32 or bf16").show_default();
  verb.add_option("--tokenizer", o->tokenizer,
                  tokenizer_option_help("Tokenizer file or folder") + "; default: the model's");
  verb.add_option("--max-shard-gb", o->max_shard_gb, "Largest file, in gigabytes").positive().show_default();
  verb.add_flag("--json", o->json, "Print the result as JSON");
  verb.on_run([o] { run(*o); });
}

}  // namespace quench
