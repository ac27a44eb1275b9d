#pragma once
// Checks across config keys, and against files and the device.

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
  bool data = true;   // data.train must be set, and a tokenizer of text known
  bool files = true;  // data, model folder, tokenizer and checkpoint to resume from must exist
  // With `files`: distill.targets must exist, and a teacher in their place need not.
  bool targets = true;
  // Loads the files of run.plugins: code, which a verb that only looks at a config does not run.
  bool plugins = true;
};

// Contradictions between keys, with their numbers; also for a RunConfig built in code. Without checks of keys with
// `skip(key)`.
[[nodiscard]] std::vector<ConfigIssue> check_run_config(
    const RunConfig& config, const CheckOptions& options = {},
    const std::function<bool(std::string_view)>& skip = [](std::string_view) { return false; });

// Gradient accumulation steps: global_batch_size / (micro_batch_size x ranks); 1 without global_batch_size. Throws
// ConfigError with the three numbers when not divisible.
[[nodiscard]] std::int64_t accumulation_steps(const RunConfig& config, std::int64_t data_parallel_ranks);

[[nodiscard]] std::vector<ConfigIssue> check_on_device(const RunConfig& config, Device device);
// Throws ConfigError with all issues of check_on_device().
void require_on_device(const RunConfig& config, Device device);

}  // namespace quench
