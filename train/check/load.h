#pragma once
// Config file plus command-line overrides to a checked RunConfig, and RunConfig to JSON.
//
// Precedence: overrides, file, defaults of run_config.h. Relative paths are relative to the working directory.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "train/check/check.h"
#include "train/config/config_issue.h"
#include "train/config/run_config.h"

namespace quench {

// Reads a config file, or the embedded run config of that name if no such file exists. Syntax of `overrides`:
// override.h. Overriding data.train of an embedded config drops its data.validation; evaluation is off without
// validation data. Throws ConfigError with all issues, or if neither file nor embedded config exists; io when the file
// cannot be read.
[[nodiscard]] RunConfig load_run_config(const std::string& file_or_name, std::span<const std::string> overrides = {},
                                        const CheckOptions& options = {});

// One-line notice that an embedded config's validation data are dropped because the overrides set other training data;
// else empty.
[[nodiscard]] std::string left_out_validation(const std::string& file_or_name,
                                              std::span<const std::string> overrides = {});

// The same for text in memory (JSON with comments); `source` is used in messages and as the run's name.
[[nodiscard]] RunConfig parse_run_config(std::string_view text, const std::string& source,
                                         std::span<const std::string> overrides = {}, const CheckOptions& options = {});

// The same for a parsed document, e.g. the config in a checkpoint.
[[nodiscard]] RunConfig run_config_from_json(Json document, const std::string& source,
                                             std::span<const std::string> overrides = {},
                                             const CheckOptions& options = {});

// Runs `work` on the result of load_run_config(). Adds the origin of the key ("run.json:12:5: ") to config errors that
// it throws.
void with_origins(const std::string& file_or_name, std::span<const std::string> overrides,
                  const std::function<void()>& work);

// Resolved config: every key in table order, section export only if present. Round-trips to an equal RunConfig.
[[nodiscard]] Json to_json(const RunConfig& config);

}  // namespace quench
