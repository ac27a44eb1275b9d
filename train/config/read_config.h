#pragma once
// JSON document to RunConfig by the field table (load.h).

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
  std::set<std::string, std::less<>> given;  // paths in the document
  std::set<std::string, std::less<>> bad;    // paths in `given` with rejected values
};

// File name, and the argument that set a key.
struct Origins {
  std::string source;
  std::map<std::string, std::string> arguments;

  // "run.json:3:7", "--training.steps=0", or the source without a position.
  [[nodiscard]] std::string of(const std::string& path, int line, int column) const;
};

// Unknown keys, wrong types and out-of-range values become issues. A top-level "$schema" is ignored.
[[nodiscard]] ReadResult read_config(const Json& document, const Origins& origins);

// `name`: default run name.
void derive_values(RunConfig& config, const std::string& name);

}  // namespace quench
