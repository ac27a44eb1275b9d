#pragma once
// Persistent cache of data file validation, so that a restarted run does not read its data again. Cache key: device,
// inode, size and change times; files without an entry are validated again.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "data/formats/content_hash.h"

namespace quench {

class ValidationCache {
 public:
  struct Tokens {
    std::string format;
    std::uint64_t id_bound = 0;  // exclusive upper bound of all ids
  };

  // `memory`: cache file; missing or unreadable files count as empty. Empty path: in-memory only.
  explicit ValidationCache(std::filesystem::path memory = {});

  // Content hash of the file, computed if not cached.
  [[nodiscard]] ContentHash content(const BinaryFile& file);
  // Result of an earlier token validation; for a Quench shard it included the payload hash.
  [[nodiscard]] std::optional<Tokens> tokens(const BinaryFile& file) const;
  void set_tokens(const BinaryFile& file, Tokens tokens);

  // Writes new entries. Failure is a warning.
  void save();

 private:
  struct Record {
    std::optional<ContentHash> content;
    std::optional<Tokens> tokens;
  };
  // Skips files changed within the timestamp resolution, whose next change might go undetected.
  void remember(const BinaryFile& file, Record record);

  std::filesystem::path memory_;
  std::map<std::string, Record> records_;
  bool changed_ = false;
};

}  // namespace quench
