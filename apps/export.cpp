// quench export: deployable model folder from a training checkpoint or model folder.

#include "apps/options/export_options.h"
#include "apps/verbs.h"

namespace quench {

void add_export_verb(const Command& app) {
  auto o = std::make_shared<ExportOptions>();
  o->format = "hf";
  const Command verb = app.add_command("export", "Write a training checkpoint as a model folder, quantized or not");
  verb.footer("Example: quench export --checkpoint runs/demo --format hf --output models/demo");
  verb.add_option("--checkpoint,--model", o->source, "Checkpoint (step-N), run folder, or model folder")
      .takes_hub_name()
      .required();
  verb.add_option("--average", o->weights.steps,
                  "Steps of a run folder, whose mean is written: parameters in f32, adapters' A and B each");
  verb.add_option("--weights", o->weights.weights, "final, or ema: the averages that training.ema_decay keeps")
      .show_default();
  o->add_to(verb);
  verb.on_run([o] { run_export(*o); });
}

}  // namespace quench
