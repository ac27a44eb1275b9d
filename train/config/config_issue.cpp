#include "train/config/config_issue.h"

#include <utility>

namespace quench {
namespace {

std::string message(const std::vector<ConfigIssue>& issues) {
  std::string text;
  for (const ConfigIssue& issue : issues) {
    if (!text.empty()) text += '\n';
    text += issue.to_string();
  }
  return text;
}

}  // namespace

std::string ConfigIssue::to_string() const {
  std::string text;
  if (!origin.empty()) text += origin + ": ";
  if (!key.empty()) text += key + ": ";
  text += reason;
  if (!suggestion.empty()) text += fmt::format(" (did you mean \"{}\"?)", suggestion);
  return text;
}

ConfigError::ConfigError(std::vector<ConfigIssue> issues)
    : Error(ErrorCode::bad_config, message(issues)), issues_(std::move(issues)) {}

}  // namespace quench
