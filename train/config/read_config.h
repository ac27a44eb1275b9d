#pragma once
// The walk from a JSON document to a RunConfig by the field table. load.h is the interface for callers.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/json/json.h"
#include "train/config/config_issue.h"
#include "train/config/run_config.h"

namespace quench {

struct ReadResult {
  RunConfig config;
  std::vector<ConfigIssue> issues;
  std::set<std::string, std::less<>> given;  // paths of the keys that the document holds
  std::set<std::string, std::less<>> bad;    // those among them whose value was refused
};

// Where values come from: the file's name, and the command-line argument of each key that one has set.
struct Origins {
  std::string source;
  std::map<std::string, std::string> arguments;

  // "run.json:3:7", "--training.steps=0", or the source alone for a value without a position.
  [[nodiscard]] std::string of(const std::string& path, int line, int column) const;
};

// Reads every key of every section; unknown keys, wrong types and values out of range become issues. A "$schema"
// member at the top, which editors read, is ignored.
[[nodiscard]] ReadResult read_config(const Json& document, const Origins& origins);

// Fills in what depends on other keys (the `derived` fields of the table). `name` is used where the run has none.
void derive_values(RunConfig& config, const std::string& name);

}  // namespace quench
