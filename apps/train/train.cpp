// quench train: pre-training or fine-tuning from a config.

#include <unistd.h>

#include <cstdio>

#include "apps/common.h"
#include "apps/options/config_arguments.h"
#include "apps/train/train.h"
#include "apps/verbs.h"
#include "core/system/log.h"
#include "core/system/signals.h"
#include "train/check/load.h"
#include "train/doctor/kernel_check.h"
#include "train/plan/run_check.h"
#include "train/run/next_commands.h"
#include "train/run/trainer.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

bool resumes_on_repetition(const RunConfig& config) {
  const ResumeFrom::Mode mode = config.checkpoint.resume.mode;
  return mode == ResumeFrom::Mode::automatic || mode == ResumeFrom::Mode::must;
}

// A launcher's restart repeats the command, which would start anew or go back and lose the steps since.
void require_repeatable(const RunConfig& config, const distributed::Environment& place) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, place.max_restarts == 0 || resumes_on_repetition(config),
                  "checkpoint.resume starts anew, or at a chosen checkpoint, at each of the launcher's restarts "
                  "(--max-restarts {}): use it without --max-restarts, then start {} with auto and --max-restarts",
                  place.max_restarts, (std::filesystem::path(config.run.folder) / "config.json").string());
}

}  // namespace

void train_as_configured(const ConfigArguments& arguments) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, !arguments.plans(),
                  "--world-size, --node-size, --network, --gpu, --max-seq-len and --max-model are for `quench "
                  "estimate`; the number of processes of a run is set by its launcher");
  RunConfig config = load_run_config(arguments.config, arguments.overrides);
  set_log_level(config.metrics.log_level);
  const distributed::Environment place = distributed::read_environment();
  // Only rank 0 logs.
  if (arguments.quiet || place.rank > 0) quieten_log();
  if (const std::string note = left_out_validation(arguments.config, arguments.overrides);
      place.rank == 0 && !note.empty())
    QUENCH_LOG_INFO("{}", note);
  const Device device = device_of_rank(arguments.device, place);
  require_repeatable(config, place);
  set_ranks(config, place.world_size);
  share_threads(config, place);
  with_origins(arguments.config, arguments.overrides, [&] { config = require_startable(config, device); });
  check_kernels(device);
  TrainResult result;
  {
    const std::shared_ptr<const distributed::Ranks> ranks = join_ranks(config, place, device);
    // With --json stdout holds only the result.
    Trainer trainer(config, device, arguments.json ? STDERR_FILENO : STDOUT_FILENO, ranks);
    result = trainer.run();
  }
  if (place.rank > 0) {
    if (result.stop_signal != 0) throw ExitRequest{exit_status_of_signal(result.stop_signal)};
    return;
  }
  if (arguments.json) print_json(to_json(result));
  if (result.stop_signal == 0) return;
  QUENCH_LOG_WARN("stopped by {} at step {}; resume with {}", signal_text(result.stop_signal), result.step,
                  resumes_on_repetition(config) ? std::string("the same command")
                                                : "quench train " + shell_word(config.run.folder + "/config.json"));
  std::fflush(stdout);
  throw ExitRequest{exit_status_of_signal(result.stop_signal)};
}

void add_train_verb(const Command& app) {
  const Command verb = app.add_command("train", "Pre-train or fine-tune as a config says");
  verb.footer(
      "Usage: quench train CONFIG [--device D] [--memory-limit SIZE] [--json] [--quiet] [--section.key=value ...]\n"
      "--memory-limit 24GB keeps the process within that much GPU memory (key training.memory_limit).\n"
      "--json prints the result as JSON on standard output, and all else on standard error; --quiet shows warnings "
      "and\n"
      "errors only. Either way the run folder's log.txt holds everything.\n"
      "CONFIG is a JSON file or a name that `quench config ls` shows; docs/reference/config.md lists every key.\n"
      "Example: quench train shakespeare_char --data.train=input.txt --training.steps=500");
  take_raw_arguments(verb, "train", train_as_configured);
}

}  // namespace quench
