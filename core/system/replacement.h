#pragma once
// Replacement of files: whatever call fails, the old ones or the new ones are in place, whole.

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/system/file.h"

namespace quench {

// New content of a file, under a temporary name next to it until commit().
class FileReplacement {
 public:
  // A link is followed: the file that it names is replaced. planned_bytes: see OutputFile.
  explicit FileReplacement(const std::filesystem::path& path, std::uint64_t planned_bytes = 0);
  ~FileReplacement();  // removes the temporary file
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  void write(std::span<const std::byte> bytes) { file_.write(bytes); }
  void write(std::string_view text) { file_.write(text); }
  // Syncs, renames, syncs the folder. Throws with the old file in place, after a failed sync of the folder with the
  // new.
  void commit();

 private:
  std::filesystem::path target_;
  std::filesystem::path temporary_;
  OutputFile file_;
};

// Renames that replace nothing, undone in reverse order unless kept.
class Moves {
 public:
  Moves() = default;
  ~Moves();
  Moves(const Moves&) = delete;
  Moves& operator=(const Moves&) = delete;

  // Throws if `to` exists.
  void move(const std::filesystem::path& from, const std::filesystem::path& to);
  void keep() noexcept { done_.clear(); }

 private:
  std::vector<std::pair<std::filesystem::path, std::filesystem::path>> done_;
};

// Moves files `leaving` of `folder` to a new subfolder replaced-N and returns it (empty: none leave), then moves files
// `arriving` from `fresh` to `folder`; the last one follows the durable others. Throws with all files where they were.
// After a kill, replaced-N holds the old files that are missing.
[[nodiscard]] std::filesystem::path exchange_files(const std::filesystem::path& fresh,
                                                   const std::filesystem::path& folder,
                                                   const std::vector<std::string>& arriving,
                                                   const std::vector<std::string>& leaving);

// Removes the named files of a folder that exchange_files() returned; true if it is gone too.
bool remove_replaced(const std::filesystem::path& replaced, const std::vector<std::string>& names);

}  // namespace quench
