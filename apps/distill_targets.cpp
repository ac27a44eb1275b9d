// quench distill-targets: a teacher's most probable tokens over the training data, for distill.targets.

#include <cstdio>

#include "apps/common.h"
#include "apps/options/config_arguments.h"
#include "apps/verbs.h"
#include "core/device/determinism.h"
#include "core/memory/memory_limit.h"
#include "core/system/key_error.h"
#include "core/system/log.h"
#include "core/system/signals.h"
#include "core/system/threads.h"
#include "train/check/check.h"
#include "train/check/load.h"
#include "train/doctor/kernel_check.h"
#include "train/metrics/step_metrics.h"
#include "train/model_folder/model_card.h"
#include "train/objectives/distillation/distill_section.h"
#include "train/objectives/distillation/run/target_setup.h"
#include "train/session/parallel_setup.h"

namespace quench {
namespace {

void require_targets_section(const RunConfig& config) {
  QUENCH_CHECK_KEY(ErrorCode::bad_config, "distill.targets",
                   distill_section(config) != nullptr && !distill_section(config)->targets.empty(),
                   "unset: name the folder to write, as --distill.targets=targets");
}

MakeTargetsReport make(const ConfigArguments& arguments, RunConfig& config, const distributed::Environment& place) {
  const Device device = device_of_rank(arguments.device, place);
  set_ranks(config, place.world_size);
  share_threads(config, place);
  require_on_device(config, device);
  set_deterministic(config.training.deterministic);
  set_batch_invariant(config.training.batch_invariant);
  limit_memory(device, config.training.memory_limit, "training.memory_limit");
  set_thread_count(static_cast<int>(config.training.threads));
  check_kernels(device);
  const std::shared_ptr<const distributed::Ranks> ranks = join_ranks(config, place, device);
  require_same_run(*ranks, config);
  return make_targets(config, device, ranks, {.watch_stop = poll_stop_signals});
}

void run_distill_targets(const ConfigArguments& arguments) {
  QUENCH_CHECK_AS(
      ErrorCode::bad_config, !arguments.plans(),
      "--world-size, --node-size, --network, --gpu, --max-seq-len and --max-model are for `quench estimate`");
  RunConfig config = load_run_config(arguments.config, arguments.overrides, {.targets = false});
  require_targets_section(config);
  set_log_level(config.metrics.log_level);
  const distributed::Environment place = distributed::read_environment();
  if (arguments.quiet || place.rank > 0) quieten_log();
  MakeTargetsReport report;
  with_origins(arguments.config, arguments.overrides, [&] { report = make(arguments, config, place); });
  if (place.rank == 0 && arguments.json) {
    Json json = Json::object();
    json.set("folder", report.folder);
    json.set("sequences", report.rows);
    json.set("kept", report.kept);
    json.set("targets", report.targets);
    json.set("bytes", report.bytes);
    json.set("complete", report.stop_signal == 0);
    print_json(json);
  } else if (place.rank == 0 && !arguments.quiet) {
    std::printf("%s: targets of %s sequences, %s of them stored before; %s targets computed, %s in all\n",
                report.folder.c_str(), format_count(static_cast<std::int64_t>(report.rows)).c_str(),
                format_count(static_cast<std::int64_t>(report.kept)).c_str(),
                format_count(static_cast<std::int64_t>(report.targets)).c_str(), size_text(report.bytes).c_str());
  }
  if (report.stop_signal == 0) return;
  QUENCH_LOG_WARN("stopped by {}; finished targets are kept, the same command computes the others",
                  signal_text(report.stop_signal));
  std::fflush(stdout);
  throw ExitRequest{exit_status_of_signal(report.stop_signal)};
}

}  // namespace

void add_distill_targets_verb(const Command& app) {
  const Command verb =
      app.add_command("distill-targets", "Store a teacher's most probable tokens over a run's training data");
  verb.footer(
      "Usage: quench distill-targets CONFIG [--device D] [--memory-limit SIZE] [--json] [--quiet]\n"
      "                                     [--section.key=value ...]\n"
      "Runs distill.teacher once over the sequences that the run reads, and stores the distill.top_k most probable\n"
      "tokens of each target in the folder distill.targets; `quench train CONFIG` then needs no teacher. A second "
      "call\n"
      "computes what is missing (docs/guide/distillation.md).\n"
      "Example: quench distill-targets qad_tiny --data.train=text.txt --distill.targets=targets");
  take_raw_arguments(verb, "distill-targets", run_distill_targets);
}

}  // namespace quench
