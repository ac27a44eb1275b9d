#pragma once
// Writer of a token shard (shard_format.h). Memory: 8 bytes per document, and one bit per token with a target mask. The
// file is renamed to its final name when complete and synced.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/system/replacement.h"

namespace quench {

// Header of a token shard.
struct ShardOptions {
  std::uint64_t vocab_size = 0;          // > 0; up to 65,536: 2 bytes per token, else 4
  std::optional<std::int32_t> eos_id{};  // metadata
  std::string tokenizer_fingerprint{};   // at most 160 bytes
  bool target_mask = false;              // one flag per token
};

class ShardWriter {
 public:
  // Replaces an existing `path` in finish().
  ShardWriter(const std::filesystem::path& path, const ShardOptions& options);
  ~ShardWriter();  // removes an unfinished file
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // To the current document. `targets`: one flag per token (1: loss target) if the shard has a mask; empty: all
  // targets. Throws invalid_argument for ids outside the vocabulary.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> targets = {});
  // No-op for an empty document.
  void end_document();
  [[nodiscard]] std::uint64_t token_count() const noexcept { return token_count_; }
  [[nodiscard]] std::uint64_t document_count() const noexcept { return document_ends_.size(); }

  // Writes the trailer, syncs, renames. Throws invalid_argument for an empty shard.
  void finish();

 private:
  struct Hash;
  void put(std::span<const std::byte> bytes);
  void pad();
  void flush();

  std::filesystem::path path_;
  ShardOptions options_;
  std::unique_ptr<Hash> hash_;
  FileReplacement file_;
  std::vector<std::byte> buffer_;
  std::uint64_t put_bytes_ = 0;
  std::uint64_t token_count_ = 0;
  std::vector<std::uint64_t> document_ends_;
  std::vector<std::uint8_t> mask_;
};

}  // namespace quench
