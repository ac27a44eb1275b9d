// quench estimate: memory, FLOPs and disk space of a run.

#include <cstdio>

#include "apps/common.h"
#include "apps/options/config_arguments.h"
#include "apps/verbs.h"
#include "train/check/load.h"
#include "train/plan/estimate.h"
#include "train/setup/parallel_setup.h"

namespace quench {

namespace {

// GPU runs can be planned on machines without a GPU.
Device planned_device(const std::string& text) {
  constexpr Device kGpu{DeviceType::cuda, 0};
  return text == "cuda" && !is_present(kGpu) ? kGpu : parse_device(text);
}

}  // namespace

void add_estimate_verb(const Command& app) {
  const Command verb = app.add_command("estimate", "Predict memory, FLOPs, disk space and step time of a run");
  verb.footer(
      "Usage: quench estimate CONFIG [--device D] [--memory-limit SIZE] [--world-size N] [--node-size N]\n"
      "                              [--network GB] [--json] [--section.key=value ...]\n"
      "Example: quench estimate llama_110m --device cuda --training.micro_batch_size=8\n"
      "--memory-limit 24GB compares with a GPU of that size, 1 GiB of it for the CUDA context and libraries.\n"
      "--device cuda plans a GPU run on a machine without a GPU too; --world-size plans rank 0 of N processes,\n"
      "on machines of --node-size GPUs (8), each of which can send --network GB/s (50) to other machines. The step "
      "time is\n"
      "that of a GPU whose rates are known (docs/guide/scaling.md).");
  take_raw_arguments(verb, "estimate", [](ConfigArguments arguments) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, !arguments.quiet, "--quiet: an estimate prints only its result");
    RunConfig config = load_run_config(arguments.config, arguments.overrides, {.data = false, .files = false});
    set_ranks(config, arguments.world_size.value_or(1));
    Cluster cluster;
    if (arguments.node_size) cluster.node_size = *arguments.node_size;
    if (arguments.network) cluster.network_bytes = *arguments.network * 1e9;
    const RunEstimate estimate = fit_run(config, planned_device(arguments.device), cluster);
    if (arguments.json) return print_json(to_json(estimate));
    std::fputs(to_string(estimate).c_str(), stdout);
  });
}

}  // namespace quench
