#pragma once
// Sequential writer of one token shard (data/formats/shard_format.h). Memory: 8 bytes per document, plus one bit per
// token with a target mask. The file is renamed to its final name only when complete and synced.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/system/file.h"

namespace quench {

struct ShardOptions {
  std::uint64_t vocab_size = 0;          // > 0; tokens of 2 bytes up to 65,536, else 4
  std::optional<std::int32_t> eos_id{};  // metadata only
  std::string tokenizer_fingerprint{};   // at most 160 bytes
  bool target_mask = false;              // store one flag per token
};

class ShardWriter {
 public:
  // Replaces an existing `path` in finish().
  ShardWriter(const std::filesystem::path& path, const ShardOptions& options);
  ~ShardWriter();  // removes an unfinished file
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Appends tokens to the current document. `targets`: one flag per token (1: loss target) if the shard has a mask;
  // empty: all targets. Throws invalid_argument for ids outside the vocabulary.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> targets = {});
  // End of the current document; no-op for an empty one.
  void end_document();
  [[nodiscard]] std::uint64_t token_count() const noexcept { return token_count_; }
  [[nodiscard]] std::uint64_t document_count() const noexcept { return document_ends_.size(); }

  // Ends the last document, writes the trailer, syncs and renames. Throws invalid_argument for an empty shard.
  void finish();

 private:
  struct Hash;
  void put(std::span<const std::byte> bytes);
  void pad();
  void flush();

  std::filesystem::path path_;
  std::filesystem::path temporary_;
  ShardOptions options_;
  std::unique_ptr<Hash> hash_;
  std::optional<OutputFile> file_;
  std::vector<std::byte> buffer_;
  std::uint64_t put_bytes_ = 0;
  std::uint64_t token_count_ = 0;
  std::vector<std::uint64_t> document_ends_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace quench
