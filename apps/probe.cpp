// quench probe: time and error of the float8 recipes on a run's own layers, and a recommended recipe.

#include <cstdio>

#include "apps/common.h"
#include "apps/options/config_arguments.h"
#include "apps/verbs.h"
#include "core/device/determinism.h"
#include "core/system/file.h"
#include "core/system/log.h"
#include "core/system/output_file.h"
#include "core/system/threads.h"
#include "train/check/load.h"
#include "train/config/resolved_config.h"
#include "train/doctor/kernel_check.h"
#include "train/probe/probe.h"

namespace quench {
namespace {

// Options of the verb, extracted before the config overrides.
struct OwnOptions {
  std::string output;
  bool overwrite = false;
  ErrorBound bound;
  double seconds = 60;  // 0: no limit
};

double parse_error_bound(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !text.empty() && *end == '\0' && value > 0 && value < 1,
                  "--max-error is '{}', expected a number between 0 and 1 (0.08 is 8%)", text);
  return value;
}

double parse_seconds(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  QUENCH_CHECK_AS(ErrorCode::bad_config, !text.empty() && *end == '\0' && value >= 0 && value < 1e9,
                  "--seconds is '{}', expected a number of seconds, or 0 for no limit", text);
  return value;
}

OwnOptions take_options(std::vector<std::string>& arguments) {
  OwnOptions options;
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto take = [&](const std::string& name) -> std::optional<std::string> {
      if (arguments[i].starts_with(name + "=")) return arguments[i].substr(name.size() + 1);
      if (arguments[i] != name) return std::nullopt;
      QUENCH_CHECK_AS(ErrorCode::bad_config, i + 1 < arguments.size(), "{} needs a value", name);
      return arguments[++i];
    };
    if (const auto file = take("--output"))
      options.output = *file;
    else if (const auto bound = take("--max-error"))
      options.bound.output = parse_error_bound(*bound);
    else if (const auto seconds = take("--seconds"))
      options.seconds = parse_seconds(*seconds);
    else if (arguments[i] == "--overwrite")
      options.overwrite = true;
    else
      rest.push_back(arguments[i]);
  }
  arguments = std::move(rest);
  return options;
}

void probe_verb(ConfigArguments arguments) {
  const OwnOptions own = take_options(arguments.overrides);
  // Output check before the measurement, whose result would otherwise be lost.
  if (!own.output.empty()) require_output_file(own.output, {.overwrite = own.overwrite, .inputs = {arguments.config}});
  RunConfig config = load_run_config(arguments.config, arguments.overrides, {.data = false, .files = false});
  set_log_level(config.metrics.log_level);
  if (arguments.quiet) quieten_log();
  set_deterministic(config.training.deterministic);
  set_batch_invariant(config.training.batch_invariant);
  set_thread_count(static_cast<int>(config.training.threads));
  const Device device = parse_device(arguments.device);
  limit_gpu_memory(arguments.device, config.training.memory_limit);
  check_kernels(device);
  const ProbeResult result = run_probe(config, device,
                                       {.bound = own.bound,
                                        .seconds = own.seconds > 0 ? std::optional(own.seconds) : std::nullopt,
                                        .progress = [](const std::string& what) { QUENCH_LOG_INFO("{}", what); }});
  config.recipe.name = kAutoRecipe;
  const ResolvedConfig chosen(config, result.choice);
  if (!own.output.empty()) write_file_atomically(own.output, to_json(*chosen).dump(2) + "\n");
  if (arguments.json) {
    Json json = to_json(result);
    json.set("config", recipe_section(chosen));
    return print_json(json);
  }
  std::printf("%s\n%s\n", to_string(result).c_str(), recipe_section(chosen).dump(2).c_str());
  if (!own.output.empty()) std::printf("wrote %s\n", own.output.c_str());
}

}  // namespace

void add_probe_verb(const Command& app) {
  const Command verb = app.add_command("probe", "Measure speed and error of float8 recipes, layer by layer");
  verb.footer(
      "Usage: quench probe CONFIG [--device D] [--memory-limit SIZE] [--json] [--output FILE [--overwrite]] "
      "[--max-error X] [--seconds S]\n"
      "                    [--quiet] [--section.key=value ...]\n"
      "Times the GEMMs of every kind of layer in bf16 and under each float8 recipe, measures errors on a "
      "micro-batch\n"
      "of data.train (random tokens where it is empty) and prints the recipe section of the fastest within the bound:\n"
      "--max-error is the largest relative error of a layer's output (default 0.08); gradients may have twice that.\n"
      "--seconds bounds the time on a CPU (default 60; 0: none) by measuring a part of the micro-batch.\n"
      "--output writes the whole config with that section, for `quench train`. recipe.name \"auto\" makes the choice "
      "when "
      "a run starts.\n"
      "Example: quench probe llama_110m --training.micro_batch_size=16 --output chosen.json");
  take_raw_arguments(verb, "probe", probe_verb);
}

}  // namespace quench
