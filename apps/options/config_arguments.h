#pragma once
// Verbs with a run config: CONFIG, overrides, a few flags.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "apps/command.h"

namespace quench {

// In --help and completion: a run config (file or embedded name), and any embedded config.
inline constexpr const char* kConfigType = "CONFIG";
inline constexpr const char* kConfigNameType = "CONFIG_NAME";

// Arguments [CONFIG] [--section.key=value ...], passed through unparsed.
[[nodiscard]] bool takes_config(const Command& verb);

struct ConfigArguments {
  std::string config;                  // file, or embedded name
  std::vector<std::string> overrides;  // as in load_run_config
  std::string device = "auto";
  bool json = false;
  bool quiet = false;
  std::optional<std::int64_t> world_size;  // planned
  std::optional<std::int64_t> node_size;   // GPUs per node
  std::optional<double> network;           // GB/s per GPU, between nodes
  std::optional<std::string> gpu;          // planned, by name
  bool max_seq_len = false;                // search for the longest sequence
  bool max_model = false;                  // search for the largest model

  // True if anything is planned that is not here; for `estimate` alone.
  [[nodiscard]] bool plans() const { return world_size || node_size || network || gpu || max_seq_len || max_model; }
};

// Takes --device, --memory-limit, --json, --quiet, --world-size, --node-size, --network, --gpu, --max-seq-len and
// --max-model; split_arguments (train/config/override.h) the rest, whose first word is the config. Throws bad_config
// without a config, HelpRequest for --help.
[[nodiscard]] ConfigArguments parse_config_arguments(const std::vector<std::string>& arguments,
                                                     const std::string& verb);

// All words after the verb, unparsed (--help still prints help).
void take_raw_arguments(const Command& verb, const std::string& name, std::function<void(ConfigArguments)> run);

}  // namespace quench
