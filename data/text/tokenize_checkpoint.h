#pragma once
// Journal of an unfinished tokenization.
//
// Header (magic, version, identity), then per batch kRecordHeadWords little-endian u64 (index, hash of the documents'
// text, input bytes up to its end, documents, payload bytes, XXH3-64 of the payload and the words before), ids and
// target flags. A record needs a valid hash and matching documents: damage invalidates it and all later ones, never
// yields a wrong id. No fsync.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/text/document.h"
#include "data/text/document_encoder.h"

namespace quench {

class TokenizeCheckpoint {
 public:
  // `identity`, 32 characters: hash of everything but the documents that determines ids and batches; another identity
  // restarts the journal. Never throws on I/O: on failure (no space, locked, other file type, left unchanged) it logs
  // one message and is disabled.
  TokenizeCheckpoint(std::filesystem::path path, const std::string& identity);
  ~TokenizeCheckpoint();  // keeps the file if it has a batch
  TokenizeCheckpoint(const TokenizeCheckpoint&) = delete;
  TokenizeCheckpoint& operator=(const TokenizeCheckpoint&) = delete;

  // Input bytes of stored batches; 0: none.
  [[nodiscard]] std::uint64_t input_bytes() const noexcept { return input_bytes_; }

  // The first mismatch ends the use of stored batches.
  [[nodiscard]] std::optional<std::vector<EncodedDocument>> take(std::span<const Document> documents);
  // `input_bytes`: end of the batch.
  void append(std::span<const Document> documents, std::span<const EncodedDocument> encoded, std::uint64_t input_bytes);
  // If owned.
  void remove() noexcept;

 private:
  static constexpr std::size_t kRecordHeadWords = 6;

  void open(const std::string& identity);
  void count_records(std::uint64_t size);
  bool write(std::span<const std::byte> bytes);
  void give_up(const std::string& reason, bool remove_file);

  std::filesystem::path path_;
  int file_ = -1;          // -1: disabled
  std::uint64_t end_ = 0;  // offset past records taken or appended
  std::uint64_t index_ = 0;
  std::uint64_t stored_ = 0;       // unverified
  std::uint64_t input_bytes_ = 0;  // end of the file's last batch
  std::uint64_t taken_bytes_ = 0;  // end of the last batch taken
};

}  // namespace quench
