#include "apps/options/export_options.h"

#include <cstdio>
#include <optional>

#include "apps/write_model.h"
#include "core/system/log.h"
#include "data/tokenizer/tokenizer_kind.h"
#include "export/table/fused_layers.h"
#include "export/table/reader_table.h"
#include "export/table/unfit_scheme.h"
#include "recipes/sparse.h"
#include "train/evaluation/evaluation_data.h"
#include "train/model_folder/model_folder.h"
#include "train/model_folder/peft_folder.h"
#include "train/model_folder/stored_block_scales.h"
#include "train/model_source/run_layout.h"

namespace quench {
namespace {

void write_adapter(const LoadedModel& loaded, const ExportOptions& o, const ExportTarget& target) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, loaded.adapters != nullptr,
                  "the checkpoint holds a whole model, no adapters: --format {} has nothing to write", kPeftFormat);
  const bool has_base = !loaded.base.empty();
  const std::unique_ptr<Tokenizer> tokenizer = has_base ? find_model_tokenizer(loaded, {}) : nullptr;
  const bool learned = tokenizer != nullptr && holds_tokenizer(loaded.base) &&
                       load_tokenizer(loaded.base)->fingerprint() != tokenizer->fingerprint();
  save_adapter_folder(*loaded.model, *loaded.adapters, target,
                      {.dtype = o.dtype == "f16" ? DType::f16 : loaded.model->options().dtype,
                       .base = loaded.base,
                       .trained_over = {loaded.base_hash, loaded.base_dtype},
                       .vocabulary = has_base && read_model_config(loaded.base).vocab_size < loaded.config.vocab_size,
                       .tokenizer = learned ? tokenizer.get() : nullptr,
                       .training = training_of(o.source)});
  const std::size_t layers = loaded.adapters->layers().size();
  if (!o.json) {
    std::printf("wrote %s (%zu adapted layers)\n", target.folder.c_str(), layers);
    return;
  }
  print_json(Json(Json::Object{{"output", target.folder.string()},
                               {"format", kPeftFormat},
                               {"adapted_layers", static_cast<std::int64_t>(layers)}}));
}

const FolderReader* reader_of(const ExportOptions& o) {
  return o.reader.empty() ? nullptr : &folder_readers().require(o.reader, "--reader");
}

// Warns of inference engines that cannot run the folder, and of layers that the scheme does not suit; throws if none
// can, or the named one cannot.
void check_readers_of(const LoadedModel& loaded, const ExportOptions& o, WriteStyle& style) {
  const DType dtype = style.dtype.value_or(loaded.model->options().dtype);
  ExpertSchemes experts;
  if (style.quantization) {
    QuantizationRules rules = *style.quantization;
    apply_format(*style.format, rules);
    const std::vector<ModelTensor> tensors = model_tensors(*loaded.model, dtype);
    style.unfit = unfit_scheme(*style.format, tensors, rules, reader_of(o));
    if (style.unfit) QUENCH_LOG_WARN("{}", to_text(*style.unfit));
    experts = expert_schemes(tensors, rules, loaded.config);
    for (const std::string& warning : check_fused_layers(*style.format, tensors, rules, reader_of(o)))
      QUENCH_LOG_WARN("{}", warning);
  }
  for (const std::string& warning :
       check_readers(*style.format, style.quantization ? &*style.quantization : nullptr, dtype, experts, reader_of(o)))
    QUENCH_LOG_WARN("{}", warning);
}

// Early check, before the model is read, for exports that no dtype makes runnable.
void refuse_unreadable(const ExportOptions& o, const WriteStyle& style) {
  const auto check = [&](DType dtype) {
    (void)check_readers(*style.format, style.quantization ? &*style.quantization : nullptr, dtype, {}, reader_of(o));
  };
  if (const auto dtype = dtype_from_string(o.dtype)) return check(*dtype);
  try {
    check(DType::f32);
  } catch (const Error&) {
    check(DType::bf16);
  }
}

// Write style for a model format.
WriteStyle style_of(const ExportOptions& o) {
  WriteStyle style{.format = &require_export_format(o.format, "--format"),
                   .quantization = o.quantization.resolve(),
                   .dtype = std::nullopt,
                   .json = o.json};
  check_format_and_rules(*style.format, style.quantization ? &*style.quantization : nullptr);
  if (o.dtype == "f16") style.dtype = DType::f16;  // storage dtype only
  refuse_unreadable(o, style);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !style.dtype || !style.quantization,
                  "--dtype f16 is for weights that are not quantized; use bf16 or f32 with a scheme");
  return style;
}

// Adapters are stored as trained.
void refuse_options_of_models(const ExportOptions& o) {
  const QuantizationSection& section = o.quantization.section;
  for (const auto& [option, given] :
       {std::pair("--sparsity", !o.sparsity.empty()), std::pair("--scheme", !section.scheme.empty()),
        std::pair("--rule", !section.rules.empty()), std::pair("--embeddings", !section.embeddings.empty()),
        std::pair("--calibration", !section.calibration.empty()), std::pair("--perplexity", !o.perplexity.empty())})
    QUENCH_CHECK_AS(ErrorCode::bad_config, !given,
                    "{} is for whole models, and --format {} writes adapters alone; choose another format, or omit it",
                    option, kPeftFormat);
}

std::vector<std::string> file_names(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(std::filesystem::path(path).filename().string());
  return names;
}

// Token perplexity in rolling windows, as in `quench eval`. The tokenizer is only used during this call.
std::function<double(nn::CausalLm&)> perplexity_meter(const LoadedModel& loaded, const ExportOptions& o,
                                                      const Tokenizer* tokenizer) {
  EvaluationData data{.files = o.perplexity};
  if (!loaded.missing.empty()) data.no_tokenizer = loaded.missing;
  struct Kept {
    std::vector<std::int32_t> tokens;
    std::vector<std::uint8_t> targets;
  };
  auto documents = std::make_shared<std::vector<Kept>>();
  read_evaluation_data(data, tokenizer, loaded.config, [&](const ScoredDocument& document) {
    documents->push_back(
        {{document.tokens.begin(), document.tokens.end()}, {document.targets.begin(), document.targets.end()}});
  });
  const PerplexityOptions options{.window = loaded.config.max_position_embeddings,
                                  .prefix = prefix_token(tokenizer, loaded.config)};
  return [documents, options](nn::CausalLm& model) {
    PerplexityMeter meter(model, options);
    for (const Kept& document : *documents)
      meter.add({.tokens = document.tokens, .targets = document.targets, .text = std::nullopt});
    return meter.finish().token_perplexity();
  };
}

}  // namespace

void ExportOptions::add_to(const Command& verb) {
  verb.add_option("--output", output,
                  "Folder to write, or with format gguf a file *.gguf; an earlier export is replaced")
      .required();
  verb.add_flag("--overwrite", overwrite,
                "Write into a folder with other files, replacing only files of the same names");
  verb.add_option("--format", format,
                  fmt::format("A model with adapters merged: {}; {}: the adapters alone",
                              fmt::join(export_format_names(), ", "), kPeftFormat))
      .show_default();
  quantization.add_to(verb);
  verb.add_option("--dtype", dtype, "auto (as trained), f32, bf16, or f16 for weights that are not quantized")
      .show_default();
  verb.add_option("--reader", reader,
                  fmt::format("Target program, {}: schemes that it cannot run are refused (default: only schemes that "
                              "no program can run are refused, and a warning names the programs that cannot)",
                              fmt::join(folder_readers().names(), ", ")));
  std::string rules;
  for (const recipes::SparsityChoice& choice : recipes::sparsity_choices())
    rules += fmt::format("{}{}", rules.empty() ? "" : " or ", choice.name);
  verb.add_option(
      "--sparsity", sparsity,
      fmt::format("{}: prune weights first, as the recipes sparse24... do, except those of --exclude", rules));
  verb.add_option("--tokenizer", tokenizer, tokenizer_option_help("Tokenizer file or folder") + "; default: the run's");
  verb.add_option("--max-shard-gb", max_shard_gb, "Largest file, in gigabytes").positive().show_default();
  verb.add_option("--perplexity", perplexity,
                  "Evaluation data (text, records or tokens): perplexity before and after quantization goes into the "
                  "report and the model card");
  verb.add_option("--device", device, "Device of calibration and --perplexity: auto, cpu, cuda or cuda:N")
      .show_default();
  verb.add_option("--memory-limit", memory_limit, kMemoryLimitHelp);
  verb.add_flag("--json", json, "Print the result as JSON");
}

void run_export(const ExportOptions& o) {
  const bool adapters_alone = o.format == kPeftFormat;
  WriteStyle style = adapters_alone ? WriteStyle() : style_of(o);
  std::optional<Sparsity24> sparsity;
  if (!o.sparsity.empty()) sparsity = recipes::require_sparsity(o.sparsity, "--sparsity");
  if (adapters_alone) refuse_options_of_models(o);
  const std::filesystem::path source = o.source;
  ExportTarget target{.folder = o.output,
                      .overwrite = o.overwrite,
                      .sources = {source, checkpoint_folder_of(source)}};  // possibly in another folder
  require_file_format(target, o.format, adapters_alone ? "" : style.format->weights_file);
  require_export_target(target);  // before reading the model
  require_weights(source, o.weights);
  const std::string dtype = style.dtype ? "auto" : o.dtype;
  // Unmodified weights are streamed one tensor at a time.
  const bool as_they_are =
      !adapters_alone && !style.quantization && !sparsity && o.perplexity.empty() && !o.weights.given();
  limit_gpu_memory(o.device, o.memory_limit);
  const MtpLayers mtp = style.format != nullptr && style.format->mtp ? MtpLayers::all : MtpLayers::of_checkpoints;
  LoadedModel loaded =
      as_they_are ? open_model(o.source, dtype, mtp) : load_weights_of(o.source, o.device, dtype, o.weights, mtp);
  if (adapters_alone) return write_adapter(loaded, o, target);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !loaded.quantized || !style.quantization,
                  "{} is quantized already: use the unquantized model", o.source);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !loaded.quantized || !sparsity,
                  "{} is quantized already: prune the unquantized model", o.source);
  check_readers_of(loaded, o, style);
  target.kept = {loaded.small_files, loaded.tokenizer, o.tokenizer};
  merge_adapters(loaded);
  if (sparsity) (void)recipes::prune(*loaded.model, *sparsity, o.quantization.exclude);
  if (style.quantization) {
    std::vector<ModelTensor> tensors = model_tensors(*loaded.model, loaded.model->options().dtype);
    if (nn::ModelConfig stored = loaded.config; style.format->fold != nullptr) style.format->fold(tensors, stored);
    loaded.trained.require_kept_codes(tensors, *style.quantization);
    loaded.trained.warn_of_others(tensors, *style.quantization);
    loaded.scales.choose_in(*style.quantization);
    if (!loaded.is_checkpoint) style.quantization->block_scales = stored_block_scales(loaded.small_files);
  }
  if (style.quantization || !o.perplexity.empty()) {
    const auto tokenizer = find_model_tokenizer(loaded, o.tokenizer);
    if (tokenizer != nullptr) check_model_tokenizer(loaded, *tokenizer);
    if (style.quantization && needs_calibration(*style.quantization))
      style.quantization->calibration =
          read_calibration_data(o.quantization.section, tokenizer.get(), loaded.config, loaded.missing);
    if (!o.perplexity.empty()) style.perplexity = perplexity_meter(loaded, o, tokenizer.get());
    style.perplexity_data = fmt::format("{}", fmt::join(file_names(o.perplexity), ", "));
  }
  style.source = o.source;
  style.training = training_of(o.source);
  write_model(loaded, o.tokenizer, o.max_shard_gb, target, style);
}

}  // namespace quench
