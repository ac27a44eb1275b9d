#pragma once
// Persistent cache of validation and content hashes, by device, inode, size and change times.

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
    std::uint64_t id_bound = 0;  // bound of all ids, exclusive
  };

  // `memory`: cache file, missing or unreadable: empty. Empty path: in memory only.
  explicit ValidationCache(std::filesystem::path memory = {});

  // Computed if not cached.
  [[nodiscard]] ContentHash content(const BinaryFile& file);
  // Earlier token validation; of a Quench shard with payload hash.
  [[nodiscard]] std::optional<Tokens> tokens(const BinaryFile& file) const;
  void set_tokens(const BinaryFile& file, Tokens tokens);

  // Failure is a warning.
  void save();

 private:
  struct Record {
    std::optional<ContentHash> content;
    std::optional<Tokens> tokens;
  };
  // Except files changed within the timestamp resolution: their next change might go undetected.
  void remember(const BinaryFile& file, Record record);

  std::filesystem::path memory_;
  std::map<std::string, Record> records_;
  bool changed_ = false;
};

}  // namespace quench
