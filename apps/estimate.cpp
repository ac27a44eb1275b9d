// quench estimate: memory, FLOPs and disk that a run will need.

#include <cstdio>

#include "apps/common.h"
#include "apps/config_arguments.h"
#include "apps/verbs.h"
#include "train/config/load.h"
#include "train/estimate.h"

namespace quench {

void add_estimate_verb(CLI::App& app) {
  CLI::App* verb = app.add_subcommand("estimate", "Memory, FLOPs and disk that a run will need");
  verb->footer(
      "Usage: quench estimate CONFIG [--device D] [--json] [--section.key=value ...]\n"
      "Example: quench estimate llama_110m --training.micro_batch_size=8");
  take_raw_arguments(verb, "estimate", [](ConfigArguments arguments) {
    const RunConfig config = load_run_config(arguments.config, arguments.overrides, {.data = false, .files = false});
    const RunEstimate estimate = estimate_run(config, parse_device(arguments.device));
    if (arguments.json) return print_json(to_json(estimate));
    std::fputs(to_string(estimate).c_str(), stdout);
  });
}

}  // namespace quench
