// quench quantize: post-training quantization of a model, then export.

#include "apps/options/export_options.h"
#include "apps/verbs.h"

namespace quench {

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
  verb.on_run([o] { run_export(*o); });
}

}  // namespace quench
