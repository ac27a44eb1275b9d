#pragma once
// Tensors of a Hugging Face model folder by name: `model.safetensors`, or the shards in `model.safetensors.index.json`
// (Transformers: "Sharded checkpoints"). The index is untrusted: it may only name plain files of the folder.

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

// File of an unsharded model.
inline constexpr std::string_view kModelFileName = "model.safetensors";
// Index of a sharded model.
inline constexpr std::string_view kModelIndexName = "model.safetensors.index.json";

// Tensor -> file. At most 1,000,000 tensors; file names: 1 to 255 characters of [A-Za-z0-9._-] without "..". Throws
// Error(corrupt) naming source, line and column.
[[nodiscard]] std::map<std::string, std::string> parse_safetensors_index(std::string_view text,
                                                                         std::string_view source);

class SafetensorsFolder {
 public:
  // model.safetensors, with a warning if there is an index too; else the shards. Of a tensor in several shards the
  // index chooses one, corrupt if it does not. A warning names a listed tensor that no shard holds. Throws not_found
  // without either, and errors of SafetensorsReader and parse_safetensors_index.
  explicit SafetensorsFolder(const std::filesystem::path& folder);

  // Stored tensor and its file; valid for the folder's lifetime.
  struct Location {
    const SafetensorsReader* reader;
    const SafetensorsEntry* entry;

    void read(std::span<std::byte> out, std::uint64_t offset = 0) const { reader->read(*entry, out, offset); }
    void prefetch() const noexcept { reader->prefetch(*entry); }
  };

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] const std::deque<SafetensorsReader>& files() const noexcept { return files_; }
  // Sorted.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::optional<Location> find(std::string_view name) const;
  // Throws not_found naming folder and tensor.
  [[nodiscard]] Location at(std::string_view name) const;
  [[nodiscard]] std::uint64_t total_bytes() const noexcept;

 private:
  // Tensors that `index` maps to this file, or all without an index.
  void add_file(const std::filesystem::path& path, const std::map<std::string, std::string>* index = nullptr);
  void open_shards(const std::filesystem::path& index);

  std::filesystem::path path_;
  std::deque<SafetensorsReader> files_;  // stable addresses
  std::map<std::string, Location, std::less<>> tensors_;
};

// Items in order, in shards of at most max_shard_bytes of data (a larger tensor has its own): `model.safetensors` if
// one suffices, else `model-00001-of-0000N.safetensors` ... and an index. Creates the folder.
//
// Replaces an existing model: new bytes are durable before an old file is removed; readers never see a mixture (briefly
// possibly no model; after a kill, the old files are in a subfolder replaced-N). A failed write leaves the old model
// intact. Throws as write_safetensors.
void write_safetensors_folder(const std::filesystem::path& folder, std::vector<SafetensorsItem> items,
                              std::uint64_t max_shard_bytes = 5'000'000'000,
                              const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// model.safetensors, index, shards.
[[nodiscard]] bool is_weights_file(std::string_view name) noexcept;

}  // namespace quench
