#pragma once
// The command line of verbs that take a run config: CONFIG, config overrides, and a few flags of the verb's own.

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace quench {

struct ConfigArguments {
  std::string config;                  // file, or name of an embedded run config
  std::vector<std::string> overrides;  // as load_run_config takes them
  std::string device = "auto";
  bool json = false;
};

// Takes --device and --json out of the arguments, the first that is no override as the config; the rest are overrides.
// Throws bad_config when there is no config.
[[nodiscard]] ConfigArguments parse_config_arguments(const std::vector<std::string>& arguments,
                                                     const std::string& verb);

// Lets a verb's callback see everything after the verb as it stands (--help still prints help).
void take_raw_arguments(CLI::App* verb, const std::string& name, std::function<void(ConfigArguments)> run);

}  // namespace quench
