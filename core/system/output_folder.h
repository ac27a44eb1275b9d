#pragma once
// Replacement of output folders; deletes only files that the command writes.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/temporary.h"

namespace quench {

// Written by the command: relative path ("tokenizer/tokenizer.json"), folders with a trailing slash.
using OwnEntry = std::function<bool(std::string_view entry)>;

// Others, sorted: unknown files and folders, links, devices. Ignores temporaries; empty for an absent folder. Throws io
// if unreadable.
[[nodiscard]] std::vector<std::string> foreign_entries(const std::filesystem::path& folder, const OwnEntry& is_own);

// "a, b, c and 4 more"
[[nodiscard]] std::string list_names(const std::vector<std::string>& names);

// Removes own files and folders without others; true if nothing is left.
bool remove_own(const std::filesystem::path& path, const OwnEntry& is_own);

// Replaces `target` (absent, empty, or without foreign entries) by `fresh`, atomically (without exchange: briefly
// absent, the old one at <target>.replaced-...). Own files of the old folder are deleted; others remain in a folder
// named in a warning. Throws io with the old folder in place.
void replace_folder(StagingFolder& fresh, const std::filesystem::path& target, const OwnEntry& is_own);

// Links resolved as far as it exists.
[[nodiscard]] std::filesystem::path resolved_path(const std::filesystem::path& path);

// `folder` or below, links resolved.
[[nodiscard]] bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace quench
