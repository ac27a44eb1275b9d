#pragma once
// Short ways to make configs and to look at what is wrong with them.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "train/check/load.h"

namespace quench::testing {

inline constexpr CheckOptions kNoFiles{.data = true, .files = false};

inline const char* kMinimal =
    R"({"model": {"preset": "tiny"}, "data": {"train": "a.bin", "seq_len": 64}, "training": {"steps": 100}})";

inline RunConfig parse(const std::string& text, const std::vector<std::string>& overrides = {},
                       const CheckOptions& options = kNoFiles) {
  return parse_run_config(text, "run.json", overrides, options);
}

// The minimal config with overrides.
inline RunConfig minimal(const std::vector<std::string>& overrides = {}) {
  return parse(kMinimal, overrides);
}

inline std::vector<ConfigIssue> issues(const std::string& text, const std::vector<std::string>& overrides = {},
                                       const CheckOptions& options = kNoFiles) {
  try {
    (void)parse(text, overrides, options);
  } catch (const ConfigError& error) {
    EXPECT_EQ(error.code(), ErrorCode::bad_config);
    return error.issues();
  }
  return {};
}

// The text of every issue of the minimal config with overrides, one a line.
inline std::string complaint(const std::vector<std::string>& overrides, const CheckOptions& options = kNoFiles) {
  std::string text;
  for (const ConfigIssue& issue : issues(kMinimal, overrides, options)) text += issue.to_string() + "\n";
  return text;
}

inline bool has_issue(const std::vector<ConfigIssue>& list, const std::string& key) {
  return std::any_of(list.begin(), list.end(), [&](const ConfigIssue& issue) { return issue.key == key; });
}

}  // namespace quench::testing
