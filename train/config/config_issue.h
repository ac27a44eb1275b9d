#pragma once
// Config errors, reported together.

#include <string>
#include <vector>

#include "core/system/check.h"

namespace quench {

struct ConfigIssue {
  std::string origin;      // "run.json:12:5", or the command-line argument; may be empty
  std::string key;         // "training.steps"; empty: whole document
  std::string reason;      // "expected integer >= 1, got 0"
  std::string suggestion;  // nearest known key or value; may be empty

  // "<origin>: <key>: <reason> (did you mean "<suggestion>"?)"
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const ConfigIssue&, const ConfigIssue&) = default;
};

// One issue per line.
class ConfigError : public Error {
 public:
  explicit ConfigError(std::vector<ConfigIssue> issues);
  [[nodiscard]] const std::vector<ConfigIssue>& issues() const noexcept { return issues_; }

 private:
  std::vector<ConfigIssue> issues_;
};

}  // namespace quench
