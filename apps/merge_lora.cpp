// quench merge-lora: merges an adapter's updates into the model's weights.

#include "apps/saved_model.h"
#include "apps/verbs.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "train/model/model.h"
#include "train/model_source/run_layout.h"

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

void run(const MergeOptions& o) {
  const std::filesystem::path source = o.model;
  const SaveTarget target{.path = o.output,
                          .overwrite = o.overwrite,
                          .tokenizer = o.tokenizer,
                          .max_shard_bytes = static_cast<std::int64_t>(o.max_shard_gb * 1e9),
                          .key = option_of};
  std::vector<std::filesystem::path> sources{source, checkpoint_folder_of(source)};
  if (!o.adapter.empty()) sources.emplace_back(o.adapter);
  check_save_target(target, sources);  // before reading the model
  Model model = Model::open(source, {.device = "cpu", .dtype = o.dtype, .adapter = o.adapter});
  model.warn_of_other_base(o.adapter);
  model.use_adapter(o.adapter);
  QUENCH_CHECK_AS(ErrorCode::bad_config, model.adapters() != nullptr,
                  "{} holds no adapters of its own; name a folder with --adapter", o.model);
  print_saved_model(model.save(target), o.json);
}

}  // namespace

void add_merge_lora_verb(const Command& app) {
  auto o = std::make_shared<MergeOptions>();
  const Command verb = app.add_command("merge-lora", "Add a LoRA adapter to a model's weights");
  verb.footer("Example: quench merge-lora --model models/llama --adapter runs/x/export --output models/llama-x");
  verb.add_option("--model", o->model, "Model folder, checkpoint or run folder; one of a LoRA run has its adapter")
      .takes_hub_name()
      .required();
  verb.add_option("--adapter", o->adapter, "PEFT adapter folder").takes_hub_name();
  verb.add_option("--output", o->output, "Folder to write; an earlier export is replaced").required();
  verb.add_flag("--overwrite", o->overwrite,
                "Write into a folder with other files, replacing only files of the same names");
  verb.add_option("--dtype", o->dtype, "auto (the model's), f32 or bf16").show_default();
  verb.add_option("--tokenizer", o->tokenizer,
                  tokenizer_option_help("Tokenizer file or folder") + "; default: the model's")
      .takes_hub_name();
  verb.add_option("--max-shard-gb", o->max_shard_gb, "Largest file, in gigabytes").positive().show_default();
  verb.add_flag("--json", o->json, "Print the result as JSON");
  verb.on_run([o] { run(*o); });
}

}  // namespace quench
