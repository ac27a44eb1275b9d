#pragma once
// What reading a data file from end to end has shown, remembered in a file, so that a run that starts again does not
// read its data again. A data file is known by device, inode, size and the times of its last change; what is not known
// is looked at anew.

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "data/formats/content_hash.h"

namespace quench {

class ValidationCache {
 public:
  // Of the tokens of a file.
  struct Tokens {
    std::string format;          // as which the file was read
    std::uint64_t id_bound = 0;  // every id is below it
  };

  // `memory`: the file that remembers; it need not exist, and one that cannot be read is taken as empty. Without a name
  // nothing outlives the object.
  explicit ValidationCache(std::filesystem::path memory = {});

  // The hash of the file's content, computed where it is not known.
  [[nodiscard]] ContentHash content(const BinaryFile& file);
  // What an earlier check of its tokens has found; a Quench shard also had its hash compared then.
  [[nodiscard]] std::optional<Tokens> tokens(const BinaryFile& file) const;
  void set_tokens(const BinaryFile& file, Tokens tokens);

  // Writes what is new. A failure is a warning: the next start looks again.
  void save();

 private:
  struct Record {
    std::optional<ContentHash> content;
    std::optional<Tokens> tokens;
  };
  // Where it can be remembered: a file that was changed a moment ago may change again within the resolution of its
  // time.
  void remember(const BinaryFile& file, Record record);

  std::filesystem::path memory_;
  std::map<std::string, Record> records_;
  bool changed_ = false;
};

}  // namespace quench
