#pragma once
// Config file and overrides to a checked RunConfig, and RunConfig to JSON.
//
// Precedence: overrides, file, defaults of run_config.h. Relative paths: from the working directory.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "train/check/check.h"
#include "train/config/config_issue.h"
#include "train/config/run_config.h"

namespace quench {

// Reads a config file, else the embedded run config of that name, which a folder does not hide. `overrides`:
// override.h. Overriding data.train of an embedded config drops its data.validation; evaluation is off without
// validation data. Throws ConfigError with all issues, or if neither exists; io if unreadable.
[[nodiscard]] RunConfig load_run_config(const std::string& file_or_name, std::span<const std::string> overrides = {},
                                        const CheckOptions& options = {});

// Notice that overrides of data.train drop an embedded config's validation data; else empty.
[[nodiscard]] std::string left_out_validation(const std::string& file_or_name,
                                              std::span<const std::string> overrides = {});

// For text in memory (JSON with comments); `source`: for messages, and the run's name.
[[nodiscard]] RunConfig parse_run_config(std::string_view text, const std::string& source,
                                         std::span<const std::string> overrides = {}, const CheckOptions& options = {});

// For a parsed document, e.g. a checkpoint's config.
[[nodiscard]] RunConfig run_config_from_json(Json document, const std::string& source,
                                             std::span<const std::string> overrides = {},
                                             const CheckOptions& options = {});

// Runs `work` on load_run_config()'s result. Adds the key's origin ("run.json:12:5: ") to config errors.
void with_origins(const std::string& file_or_name, std::span<const std::string> overrides,
                  const std::function<void()>& work);

// Every key in table order; section export only if present. Round-trips to an equal RunConfig.
[[nodiscard]] Json to_json(const RunConfig& config);

}  // namespace quench
