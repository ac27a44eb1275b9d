#pragma once
// Command line of verbs with a run config: CONFIG, config overrides, and a few flags.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

// Type names in --help and shell completion for a run config (file or embedded name), and for any embedded config.
inline constexpr const char* kConfigType = "CONFIG";
inline constexpr const char* kConfigNameType = "CONFIG_NAME";

// True for verbs with arguments CONFIG [--section.key=value ...], which the parser passes through unparsed.
[[nodiscard]] bool takes_config(const Command& verb);

struct ConfigArguments {
  std::string config;                  // file, or name of an embedded run config
  std::vector<std::string> overrides;  // as in load_run_config
  std::string device = "auto";
  bool json = false;
  bool quiet = false;
  std::optional<std::int64_t> world_size;  // of a planned run
  std::optional<std::int64_t> node_size;   // GPUs per node
  std::optional<double> network;           // inter-node bandwidth per GPU, GB/s
};

// Extracts --device, --json, --quiet, --world-size, --node-size and --network; split_arguments
// (train/config/override.h) handles the rest, whose first word is the config. Throws bad_config without a config,
// HelpRequest for --help.
[[nodiscard]] ConfigArguments parse_config_arguments(const std::vector<std::string>& arguments,
                                                     const std::string& verb);

// Passes all words after the verb unparsed to `run` (--help still prints help).
void take_raw_arguments(const Command& verb, const std::string& name, std::function<void(ConfigArguments)> run);

}  // namespace quench
