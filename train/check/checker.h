#pragma once
// State of the config checks (check.h).

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "train/check/check.h"

namespace quench {

// Checks of one config: reads it, and collects issues by key.
class Checker {
 public:
  Checker(const RunConfig& config, const CheckOptions& options, const std::function<bool(std::string_view)>& skip)
      : config_(config), options_(options), skip_(skip) {}

  [[nodiscard]] const RunConfig& config() const noexcept { return config_; }
  [[nodiscard]] const CheckOptions& options() const noexcept { return options_; }

  // True if all keys were parsed.
  [[nodiscard]] bool usable(std::initializer_list<std::string_view> keys) const {
    for (const std::string_view key : keys) {
      if (skip_(key)) return false;
    }
    return true;
  }

  template <class... Args>
  void report(std::string key, fmt::format_string<Args...> reason, Args&&... args) {
    issues_.push_back({"", std::move(key), fmt::format(reason, std::forward<Args>(args)...), ""});
  }
  // Reports what `work` throws.
  template <class Work>
  void judge(std::string key, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      report(std::move(key), "{}", error.what());
    }
  }
  void suggest(std::string suggestion) { issues_.back().suggestion = std::move(suggestion); }

  [[nodiscard]] std::size_t issue_count() const noexcept { return issues_.size(); }
  [[nodiscard]] std::vector<ConfigIssue> take_issues() { return std::move(issues_); }

 private:
  const RunConfig& config_;
  const CheckOptions& options_;
  const std::function<bool(std::string_view)>& skip_;
  std::vector<ConfigIssue> issues_;
};

}  // namespace quench
