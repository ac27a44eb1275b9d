// quench train: pre-trains or fine-tunes as a config says.

#include <unistd.h>

#include <cstdio>

#include "apps/common.h"
#include "apps/config_arguments.h"
#include "apps/verbs.h"
#include "core/log.h"
#include "train/config/load.h"
#include "train/run_check.h"
#include "train/signals.h"
#include "train/trainer.h"

namespace quench {
namespace {

void run(const ConfigArguments& arguments) {
  const RunConfig config = load_run_config(arguments.config, arguments.overrides);
  set_log_level(config.metrics.log_level);
  const Device device = parse_device(arguments.device);
  require_startable(config, device);
  TrainResult result;
  {
    Trainer trainer(config, device);
    result = trainer.run();
  }
  if (arguments.json) {
    Json json = Json::object();
    json.set("step", result.step);
    json.set("loss", result.loss);
    json.set("checkpoint", result.checkpoint);
    json.set("exported", result.exported);
    print_json(json);
  } else if (!result.exported.empty()) {
    std::printf("wrote model folder %s\n", result.exported.c_str());
  }
  if (result.stop_signal == 0) return;
  QUENCH_LOG_WARN("stopped by signal {} at step {}; resume with the same command", result.stop_signal, result.step);
  std::fflush(stdout);
  throw CLI::RuntimeError(exit_status_of_signal(result.stop_signal));
}

}  // namespace

void add_train_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("train", "Pre-train or fine-tune as a config says");
  verb->footer(
      "Usage: quench train CONFIG [--device D] [--json] [--section.key=value ...]\n"
      "CONFIG is a JSON file or a name that `quench config ls` shows; docs/config.md lists every key.\n"
      "Example: quench train shakespeare_char --data.train=input.txt --training.steps=500");
  take_raw_arguments(verb, "train", run);
}

}  // namespace quench
