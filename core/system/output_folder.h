#pragma once
// Folders that a verb writes whole: what of an earlier one may be replaced, and how. Nothing is deleted that the verb
// does not write itself.

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/system/temporary.h"

namespace quench {

// Whether a verb writes such an entry: a file's path relative to the folder ("tokenizer/tokenizer.json"), or a folder's
// with a slash at its end ("tokenizer/").
using OwnEntry = std::function<bool(std::string_view entry)>;

// What stands in the folder and is not the verb's, sorted: files and folders that `is_own` does not know, links and
// devices whatever they are called. Temporaries beside the files do not count. An absent folder holds nothing. Throws
// io when a folder cannot be read.
[[nodiscard]] std::vector<std::string> foreign_entries(const std::filesystem::path& folder, const OwnEntry& is_own);

// "a, b, c and 4 more"
[[nodiscard]] std::string list_names(const std::vector<std::string>& names);

// Gives the complete folder `fresh` the place of `target`, which is absent, empty, or holds nothing foreign; at every
// moment the old or the new one stands there (on file systems that cannot exchange two folders, for an instant neither:
// the old one is then beside it as <target>.replaced-...). The old one's own files are deleted; what is not the verb's
// stays, in a folder that a warning names. Throws io; the old folder is then in its place.
void replace_folder(StagingFolder& fresh, const std::filesystem::path& target, const OwnEntry& is_own);

// Absolute, with links followed as far as the path exists.
[[nodiscard]] std::filesystem::path resolved_path(const std::filesystem::path& path);

// Whether `path` is `folder` or below it, links followed.
[[nodiscard]] bool is_within(const std::filesystem::path& path, const std::filesystem::path& folder);

}  // namespace quench
