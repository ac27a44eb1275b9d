#include "apps/options/export_options.h"

#include "apps/common.h"
#include "apps/options/choice_types.h"
#include "apps/saved_model.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/table/reader_table.h"
#include "recipes/sparse.h"
#include "train/model/model.h"

namespace quench {
void ExportOptions::add_to(const Command& verb) {
  verb.add_option("--output", output,
                  "Folder to write, or with format gguf a file *.gguf; an earlier export is replaced")
      .required();
  verb.add_flag("--overwrite", overwrite,
                "Write into a folder with other files, replacing only files of the same names");
  verb.add_option("--format", format,
                  fmt::format("A model with adapters merged: {}; {}: the adapters alone",
                              fmt::join(export_format_names(), ", "), fmt::join(kAdapterFormats, ", ")))
      .type_name(kExportFormatType)
      .show_default();
  quantization.add_to(verb);
  const CommandOption bits = verb.add_option(
      "--target-bits", target_bits,
      "Scheme of each layer by a budget: mean bits a weight of the layers that it chooses for; --scheme "
      "lists candidates (default: all of the format), --calibration measures sensitivities");
  verb.add_option("--target-size", target_size,
                  "The same for the size of the weights files: a number with kB, MB, GB, KiB, MiB or GiB, such as 5GB")
      .excludes(bits);
  verb.add_option(
          "--search-steps", search_steps,
          "Trials of other choices of a budget, by the KL divergence of the outputs on the calibration data; 0: "
          "the estimate alone chooses")
      .show_default();
  verb.add_option("--save-plan", save_plan, "File for the choice of a budget, for --plan and recipe.rules");
  verb.add_flag("--allow-requantize", allow_requantize,
                "Quantize the rounded values of a model that is quantized already, at a loss");
  verb.add_option("--dtype", dtype, "auto (as trained), f32, bf16, or f16 for weights that are not quantized")
      .show_default();
  verb.add_option("--reader", reader,
                  fmt::format("Target program, {}: schemes that it cannot run are refused (default: only schemes that "
                              "no program can run are refused, and a warning names the programs that cannot)",
                              fmt::join(folder_readers().names(), ", ")));
  const auto listed = [](const auto& table) {
    std::string text;
    for (const auto& entry : table)
      text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", entry.name, entry.summary);
    return text;
  };
  verb.add_option("--kv-cache", kv_cache,
                  fmt::format("Format in which readers of the folder hold the KV cache, also without --scheme: {}; "
                              "default: the model's dtype",
                              listed(kv_formats())));
  verb.add_option("--kv-cache-scales", kv_cache_scales,
                  fmt::format("Scales of --kv-cache: {}; default: {}", listed(kv_scale_choices()),
                              kv_scale_choices().front().name));
  std::string rules;
  for (const recipes::SparsityChoice& choice : recipes::sparsity_choices())
    rules += fmt::format("{}{}", rules.empty() ? "" : " or ", choice.name);
  verb.add_option(
      "--sparsity", sparsity,
      fmt::format("{}: prune weights first, as the recipes sparse24... do, except those of --exclude", rules));
  verb.add_flag(
      "--rotate", rotate,
      "Multiply the residual stream and the values of each head by randomized Hadamard matrices first, folded "
      "into the weights (QuaRot, SpinQuant: R1 and R2): outliers spread over all channels, and the model "
      "computes the same");
  verb.add_option("--tokenizer", tokenizer, tokenizer_option_help("Tokenizer file or folder") + "; default: the run's")
      .takes_hub_name();
  verb.add_option("--max-shard-gb", max_shard_gb, "Largest file, in gigabytes").positive().show_default();
  verb.add_option("--perplexity", perplexity,
                  "Evaluation data (text, records or tokens): perplexity before and after quantization goes into the "
                  "report and the model card")
      .takes_hub_name();
  verb.add_option("--device", device, "Device of calibration and --perplexity: auto, cpu, cuda or cuda:N")
      .show_default();
  verb.add_option("--memory-limit", memory_limit, kMemoryLimitHelp);
  verb.add_flag("--json", json, "Print the result as JSON");
}

SaveTarget save_target(const ExportOptions& o) {
  return {.path = o.output,
          .overwrite = o.overwrite,
          .format = o.format,
          .quantization = o.quantization.named(),
          .target_bits = o.target_bits,
          .target_size = o.target_size,
          .search_steps = o.search_steps,
          .save_plan = o.save_plan,
          .dtype = o.dtype,
          .reader = o.reader,
          .allow_requantize = o.allow_requantize,
          .kv_cache = o.kv_cache,
          .kv_cache_scales = o.kv_cache_scales,
          .sparsity = o.sparsity,
          .rotate = o.rotate,
          .tokenizer = o.tokenizer,
          .max_shard_bytes = static_cast<std::int64_t>(o.max_shard_gb * 1e9),
          .perplexity = o.perplexity,
          .key = option_of};
}

void run_export(const ExportOptions& o) {
  const SaveTarget target = save_target(o);
  limit_gpu_memory(o.device, o.memory_limit);
  const ModelOptions options{
      .device = o.device, .dtype = o.dtype == "f16" ? "auto" : o.dtype, .weights = o.weights};  // f16: as stored
  print_saved_model(convert_model(o.source, options, target), o.json);
}

}  // namespace quench
