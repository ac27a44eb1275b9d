#pragma once
// Reports of earlier self-tests, one file per key in the user's cache folder.

#include <filesystem>
#include <optional>

#include "core/json/json.h"
#include "core/self_test/self_test.h"

namespace quench {

// $XDG_CACHE_HOME/quench, else ~/.cache/quench; empty without either variable.
[[nodiscard]] std::filesystem::path verdict_folder();

// `key`: all that results depend on. Absent for a missing, unreadable, corrupt or foreign file, and for one that
// another user owns or may write, or whose folder is such. Never throws.
[[nodiscard]] std::optional<SelfTestReport> read_verdict(const std::filesystem::path& folder, const Json& key) noexcept;
// False if the folder cannot be written. Never throws.
bool write_verdict(const std::filesystem::path& folder, const Json& key, const SelfTestReport& report) noexcept;

// {"families": [{"name", "status", "detail"}], "seconds"}.
[[nodiscard]] Json to_json(const SelfTestReport& report);

}  // namespace quench
