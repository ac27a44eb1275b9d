#pragma once
// From a config file and command-line overrides to a checked RunConfig, and back to JSON.
//
// Precedence: overrides, then the file, then the defaults of run_config.h. Relative paths are relative to the working
// directory of the process.

#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "train/check/check.h"
#include "train/config/config_issue.h"
#include "train/config/run_config.h"

namespace quench {

// Reads a config file, or the embedded run config of that name where no such file exists; `overrides` are arguments
// as override.h describes them. An embedded config's data.validation belongs to its data.train and goes when the
// overrides name other training data; its evaluations are off where there is no held-out data. Throws ConfigError with
// everything that is wrong with any of it, or that there is neither file nor embedded config; io when the file cannot
// be read.
[[nodiscard]] RunConfig load_run_config(const std::string& file_or_name, std::span<const std::string> overrides = {},
                                        const CheckOptions& options = {});

// An embedded config's validation data, of arguments as load_run_config() takes them, that is left out because they
// name other training data: a line for people; empty where none is.
[[nodiscard]] std::string left_out_validation(const std::string& file_or_name,
                                              std::span<const std::string> overrides = {});

// The same for text in memory (JSON with comments); `source` names it in messages and names the run.
[[nodiscard]] RunConfig parse_run_config(std::string_view text, const std::string& source,
                                         std::span<const std::string> overrides = {}, const CheckOptions& options = {});

// The same for a document, for example the config stored in a checkpoint.
[[nodiscard]] RunConfig run_config_from_json(Json document, const std::string& source,
                                             std::span<const std::string> overrides = {},
                                             const CheckOptions& options = {});

// Runs `work` on what load_run_config() has made of the same arguments. An error of it that is about a key of the
// config says where the key is set, as those of load_run_config() do: "run.json:12:5: " in front.
void with_origins(const std::string& file_or_name, std::span<const std::string> overrides,
                  const std::function<void()>& work);

// The resolved config: every key in table order, section export only where present. Reading the result
// again gives an equal RunConfig.
[[nodiscard]] Json to_json(const RunConfig& config);

}  // namespace quench
