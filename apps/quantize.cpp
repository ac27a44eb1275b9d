// quench quantize: post-training quantization of a model, then export.

#include <cstdio>

#include "apps/common.h"
#include "apps/options/export_options.h"
#include "apps/verbs.h"
#include "train/model/quantize_files.h"
#include "train/model_folder/model_card.h"

namespace quench {
namespace {

void run_model_free(const ExportOptions& o) {
  const QuantizedFiles files = quantize_files(o.source, save_target(o));
  if (o.json) {
    Json json = Json::object(), unfit = Json::object();
    for (const auto& [layer, reason] : files.unfit) unfit.set(layer, reason);
    json.set("output", o.output);
    json.set("scheme", o.quantization.section.scheme);
    json.set("quantized", files.quantized);
    json.set("kept", files.kept);
    json.set("unfit", std::move(unfit));
    json.set("source_bytes", files.source_bytes);
    json.set("file_bytes", files.bytes);
    return print_json(json);
  }
  for (const auto& [layer, reason] : files.unfit)
    std::fputs(fmt::format("  {}  high precision (kept: {})\n", layer, reason).c_str(), stdout);
  std::fputs(fmt::format("wrote {} ({} weights under {}, {} other tensors as they were; {} of {})\n", o.output,
                         files.quantized, o.quantization.section.scheme, files.kept, size_text(files.bytes),
                         size_text(files.source_bytes))
                 .c_str(),
             stdout);
}

}  // namespace

void add_quantize_verb(const Command& app) {
  auto o = std::make_shared<ExportOptions>();
  o->format = "compressed-tensors";
  const Command verb = app.add_command("quantize", "Quantize a trained model and write it as a model folder");
  verb.footer(
      "Example: quench quantize --model runs/demo/export --scheme int4_weight_only_g32 --output models/demo-int4");
  verb.add_option("--model,--checkpoint", o->source, "Model folder, checkpoint (step-N), or run folder")
      .takes_hub_name()
      .required();
  o->add_to(verb);
  const auto model_free = std::make_shared<bool>(false);
  verb.add_flag(
      "--model-free", *model_free,
      "Round the matrices *.weight of any architecture's safetensors files, one at a time, and copy all else");
  verb.on_run([o, model_free] { *model_free ? run_model_free(*o) : run_export(*o); });
}

}  // namespace quench
