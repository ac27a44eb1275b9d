#pragma once
// Checks that involve more than one key, or the world outside the config.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device/device.h"
#include "train/config/config_issue.h"
#include "train/config/run_config.h"

namespace quench {

struct CheckOptions {
  bool data = true;   // data.train must not be empty
  bool files = true;  // data files, model folder, tokenizer and the checkpoint to resume from must exist
};

// Contradictions between keys; messages carry the numbers. Works on any RunConfig, also one built in code. A check is
// left out where `skip(key)` says that one of its keys was already found bad.
[[nodiscard]] std::vector<ConfigIssue> check_run_config(
    const RunConfig& config, const CheckOptions& options = {},
    const std::function<bool(std::string_view)>& skip = [](std::string_view) { return false; });

// Micro-batches that one rank accumulates per optimizer step: global_batch_size / (micro_batch_size x ranks), 1 where
// global_batch_size is unset. Throws ConfigError with the three numbers when it does not divide.
[[nodiscard]] std::int64_t accumulation_steps(const RunConfig& config, std::int64_t data_parallel_ranks);

// What a run on this device cannot do.
[[nodiscard]] std::vector<ConfigIssue> check_on_device(const RunConfig& config, Device device);
// Throws ConfigError with all of it, if there is any.
void require_on_device(const RunConfig& config, Device device);

}  // namespace quench
