#pragma once
// Writes one token shard (data/formats/shard_format.h), front to back, in bounded memory: 8 bytes a document and, with
// a target mask, one bit a token. The file appears under its name only when it is complete and on disk.

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
  std::uint64_t vocab_size = 0;          // > 0; tokens are stored in 2 bytes up to 65,536, else in 4
  std::optional<std::int32_t> eos_id{};  // recorded only
  std::string tokenizer_fingerprint{};   // at most 160 bytes
  bool target_mask = false;              // store one flag a token
};

class ShardWriter {
 public:
  // Replaces `path` when finished.
  ShardWriter(const std::filesystem::path& path, const ShardOptions& options);
  ~ShardWriter();  // removes the unfinished file
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // Adds tokens to the current document. `targets` (1: the token may be a target) has one flag a token when the shard
  // has a mask; empty means all are targets. Throws invalid_argument for an id outside the vocabulary.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> targets = {});
  // Ends the current document; nothing happens if it has no tokens.
  void end_document();
  [[nodiscard]] std::uint64_t token_count() const noexcept { return token_count_; }
  [[nodiscard]] std::uint64_t document_count() const noexcept { return document_ends_.size(); }

  // Ends the last document, writes the trailer, syncs and renames. Throws invalid_argument for a shard of no tokens.
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
