#pragma once
// Hugging Face model folders: the tensors of `model.safetensors`, or of the shards that `model.safetensors.index.json`
// lists, under one lookup by name.
//
// The index is as untrusted as the files: it may name plain files of its own folder only, and index and shards must
// agree in both directions: every listed tensor is in its shard, and no shard holds another one.
// Source: "Sharded checkpoints" in the documentation of Hugging Face Transformers.

#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/safetensors/safetensors.h"

namespace quench {

inline constexpr std::string_view kModelFileName = "model.safetensors";
inline constexpr std::string_view kModelIndexName = "model.safetensors.index.json";

// Tensor name -> file name, from the text of an index. At most 1,000,000 tensors; file names of 1 to 255 characters of
// [A-Za-z0-9._-] without "..". Throws Error(corrupt) that names source, line and column.
[[nodiscard]] std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                                         std::string_view source);

class SafetensorsFolder {
 public:
  // Opens the folder's model.safetensors or else, if it has none, the shards of its index: Transformers' order. Throws
  // not_found if it has neither, otherwise what SafetensorsReader and parse_safetensors_index throw.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  struct Location {
    const SafetensorsReader* reader;
    const SafetensorsEntry* entry;

    void read(std::span<std::byte> out, std::uint64_t offset = 0) const { reader->read(*entry, out, offset); }
  };

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const std::deque<SafetensorsReader>& files() const noexcept { return files_; }
  // Every tensor, in order of the names.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::optional<Location> find(std::string_view name) const;
  // Throws not_found naming the folder and the tensor.
  [[nodiscard]] Location at(std::string_view name) const;
  // Bytes of all tensors.
  [[nodiscard]] std::uint64_t total_bytes() const noexcept;

 private:
  void add_file(const std::filesystem::path& path);
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::deque<SafetensorsReader> files_;  // a deque: tensors_ points into it
  std::map<std::string, Location, std::less<>> tensors_;
};

// Writes the items, in the given order, to shards of at most max_shard_bytes of data each (a larger tensor gets a shard
// of its own): `model.safetensors` if one is enough, otherwise `model-00001-of-0000N.safetensors` and so on with an
// index. Creates the folder if need be.
//
// A model already there is replaced: all new bytes are on disk before the first old file goes, files of the old model
// that the new one does not have are removed, and at no time does a reader find a mixture of both (for a moment it may
// find none). A failed write leaves the old model intact. Throws as write_safetensors does.
void write_safetensors_folder(const std::filesystem::path& folder, std::vector<SafetensorsItem> items,
                              std::uint64_t max_shard_bytes = 5'000'000'000,
                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// Whether write_safetensors_folder gives a file this name: model.safetensors, the index, a shard.
[[nodiscard]] bool is_weights_file(std::string_view name) noexcept;

}  // namespace quench
