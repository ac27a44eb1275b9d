#include "apps/write_model.h"

#include <cstdio>

#include "core/system/log.h"
#include "train/model_folder/model_card.h"
#include "train/model_folder/model_folder.h"

namespace quench {
namespace {

void print_result(const LoadedModel& loaded, const ExportTarget& target, const ModelFolderOptions& options,
                  const ModelFolderReport& report, const WriteStyle& style) {
  const ExportFormat& format = options.format != nullptr ? *options.format : export_formats().front();
  nn::ModelConfig written = loaded.config;
  if (!format.mtp) written.mtp.layers = 0;
  const std::string scheme = options.quantization ? options.quantization->scheme->name : "";
  if (style.json) {
    Json json = Json::object();
    json.set("output", target.folder.string());
    json.set("format", format.name);
    json.set("dtype", to_string(options.dtype));
    json.set("parameters", written.parameter_count());
    json.set("scheme", scheme.empty() ? Json() : Json(scheme));
    if (style.unfit) json.set("unfit", to_json(*style.unfit));
    json.set("layers", to_json(report.layers));
    json.set("file_bytes", report.file_bytes);
    if (report.perplexity_before) json.set("perplexity_before", *report.perplexity_before);
    if (report.perplexity) json.set("perplexity", *report.perplexity);
    return print_json(json);
  }
  if (!report.layers.empty()) std::fputs(to_text(report.layers).c_str(), stdout);
  if (report.perplexity) {
    const std::string before =
        report.perplexity_before ? fmt::format(" (before quantization {:.4f})", *report.perplexity_before) : "";
    std::printf("perplexity %.4f%s\n", *report.perplexity, before.c_str());
  }
  const std::string how = scheme.empty() ? "" : fmt::format(", {} as {}", scheme, format.name);
  std::fputs(fmt::format("wrote {} ({}{}, {} parameters, {})\n", target.folder.string(), to_string(options.dtype), how,
                         written.parameter_count(), size_text(report.file_bytes))
                 .c_str(),
             stdout);
}

}  // namespace

void write_model(const LoadedModel& loaded, const std::string& named_tokenizer, double max_shard_gb,
                 const ExportTarget& target, const WriteStyle& style) {
  ModelFolderOptions options;
  options.format = style.format;
  options.whole = loaded.whole;
  options.quantization = style.quantization;
  options.dtype = style.dtype.value_or(loaded.model->options().dtype);
  options.max_shard_bytes = static_cast<std::int64_t>(max_shard_gb * 1e9);
  const std::unique_ptr<Tokenizer> tokenizer = find_model_tokenizer(loaded, named_tokenizer);
  const TokenIdChoice ids = model_token_ids(loaded, tokenizer.get());
  nn::ModelConfig config = loaded.config;
  if (tokenizer != nullptr || loaded.small_files.empty()) set_token_ids(config, ids.config);
  options.config = &config;
  // A named tokenizer folder provides its own small files.
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
  options.card = {.source = style.source,
                  .training = style.training,
                  .perplexity_data = style.perplexity_data,
                  .perplexity = style.perplexity};
  const ModelFolderReport report = save_model_folder(*loaded.model, target, options);
  print_result(loaded, target, options, report, style);
}

}  // namespace quench
