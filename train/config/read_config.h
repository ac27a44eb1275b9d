#pragma once
// Traversal of a JSON document to a RunConfig by the field table. Public interface: load.h.

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
  std::set<std::string, std::less<>> given;  // paths present in the document
  std::set<std::string, std::less<>> bad;    // subset of `given` with rejected values
};

// Origins of values: file name, and the command-line argument that set a key.
struct Origins {
  std::string source;
  std::map<std::string, std::string> arguments;

  // "run.json:3:7", "--training.steps=0", or the source alone without a position.
  [[nodiscard]] std::string of(const std::string& path, int line, int column) const;
};

// Reads all keys; unknown keys, wrong types and out-of-range values become issues. A top-level "$schema" is ignored.
[[nodiscard]] ReadResult read_config(const Json& document, const Origins& origins);

// Computes `derived` fields. `name`: default run name.
void derive_values(RunConfig& config, const std::string& name);

}  // namespace quench
