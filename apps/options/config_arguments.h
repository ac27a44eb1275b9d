#pragma once
// The command line of verbs that take a run config: CONFIG, config overrides, and a few flags of the verb's own.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

// Type names of options and positional arguments whose value is a run config (a file or an embedded name), or the name
// of any embedded config: shown by --help, and what shells complete.
inline constexpr const char* kConfigType = "CONFIG";
inline constexpr const char* kConfigNameType = "CONFIG_NAME";

// True for verbs whose words are CONFIG [--section.key=value ...], which the program's parser hands on as they stand.
[[nodiscard]] bool takes_config(const Command& verb);

struct ConfigArguments {
  std::string config;                  // file, or name of an embedded run config
  std::vector<std::string> overrides;  // as load_run_config takes them
  std::string device = "auto";
  bool json = false;
  bool quiet = false;
  std::optional<std::int64_t> world_size;  // of a planned run, and below: its machines
  std::optional<std::int64_t> node_size;   // GPUs of one
  std::optional<double> network;           // GB/s from a GPU to other machines
};

// Takes --device, --json, --quiet, --world-size, --node-size and --network out of the arguments; split_arguments
// (train/config/override.h) divides the rest: the first word is the config. Throws bad_config when there is no config.
// Asked for help, it throws HelpRequest.
[[nodiscard]] ConfigArguments parse_config_arguments(const std::vector<std::string>& arguments,
                                                     const std::string& verb);

// Lets a verb's callback see everything after the verb as it stands (--help still prints help).
void take_raw_arguments(const Command& verb, const std::string& name, std::function<void(ConfigArguments)> run);

}  // namespace quench
