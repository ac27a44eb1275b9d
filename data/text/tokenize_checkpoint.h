#pragma once
// Journal of an unfinished tokenization, to resume without encoding again.
//
// File: header (magic, version, identity), then per batch kRecordHeadWords little-endian u64 (index, hash of the
// documents' text, input bytes up to its end, documents, payload bytes, XXH3-64 of the payload and the words before),
// ids and target flags. A record is used only with a valid hash and matching documents: damage invalidates it and all
// following records, never yields a wrong id. No fsync.

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
  // Opens the journal at `path`. `identity`, 32 characters: hash of everything except the documents that determines ids
  // and batches; on a mismatch the journal is restarted. Never throws on I/O: on failure (no space, locked, other file
  // type, left unchanged) it logs one message and is disabled.
  TokenizeCheckpoint(std::filesystem::path path, const std::string& identity);
  ~TokenizeCheckpoint();  // keeps the file unless it has no batch
  TokenizeCheckpoint(const TokenizeCheckpoint&) = delete;
  TokenizeCheckpoint& operator=(const TokenizeCheckpoint&) = delete;

  // Input bytes covered by the stored batches; 0: none.
  [[nodiscard]] std::uint64_t input_bytes() const noexcept { return input_bytes_; }

  // Encodings of the next batch, if stored. The first mismatch ends the use of stored batches.
  [[nodiscard]] std::optional<std::vector<EncodedDocument>> take(std::span<const Document> documents);
  // `input_bytes`: end of the batch in the input.
  void append(std::span<const Document> documents, std::span<const EncodedDocument> encoded, std::uint64_t input_bytes);
  // Deletes the file, if owned.
  void remove() noexcept;

 private:
  static constexpr std::size_t kRecordHeadWords = 6;

  void open(const std::string& identity);
  void count_records(std::uint64_t size);
  bool write(std::span<const std::byte> bytes);
  void give_up(const std::string& reason, bool remove_file);

  std::filesystem::path path_;
  int file_ = -1;          // -1: disabled
  std::uint64_t end_ = 0;  // end of the records taken or appended
  std::uint64_t index_ = 0;
  std::uint64_t stored_ = 0;       // batches in the file, unverified
  std::uint64_t input_bytes_ = 0;  // end of the last batch of the file
  std::uint64_t taken_bytes_ = 0;  // end of the last batch taken
};

}  // namespace quench
