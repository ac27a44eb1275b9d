#pragma once
// The ids of a tokenization that is not finished, batch by batch, so that the next one need not encode them again.
//
// The file is a header (magic, version, identity) and one record a batch: a head of kRecordHeadWords little-endian
// 64-bit words (index, hash of the documents' text, bytes of the input up to its end, documents, payload bytes, XXH3-64
// of the payload and of the words before), then the ids and target flags. A record counts only if its hash is right and
// its documents are those that are asked for: a torn or damaged record costs its own work and that of those behind it,
// never a wrong id. Nothing is synced: after a power cut the records that reached the disk count.

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
  // Opens the journal at `path`. `identity`, 32 characters, stands for all but the documents that decides ids and
  // batches; a journal of another identity is begun anew. Never throws for what the disk does: a journal that cannot be
  // kept (no space, another process holds it, the file is something else and stays as it is) costs one log message,
  // and the object then does nothing.
  TokenizeCheckpoint(std::filesystem::path path, const std::string& identity);
  ~TokenizeCheckpoint();  // the file stays unless it holds no batch
  TokenizeCheckpoint(const TokenizeCheckpoint&) = delete;
  TokenizeCheckpoint& operator=(const TokenizeCheckpoint&) = delete;

  // Bytes of the input that the stored batches reach to; 0: none is stored.
  [[nodiscard]] std::uint64_t input_bytes() const noexcept { return input_bytes_; }

  // The encodings of the next batch, if they are stored. The first batch that is not ends what is stored.
  [[nodiscard]] std::optional<std::vector<EncodedDocument>> take(std::span<const Document> documents);
  // Stores the next batch, which take() did not have. `input_bytes`: where it ends.
  void append(std::span<const Document> documents, std::span<const EncodedDocument> encoded, std::uint64_t input_bytes);
  // Deletes the file, if it is this object's.
  void remove() noexcept;

 private:
  static constexpr std::size_t kRecordHeadWords = 6;

  void open(const std::string& identity);
  void count_records(std::uint64_t size);
  bool write(std::span<const std::byte> bytes);
  void give_up(const std::string& reason, bool remove_file);

  std::filesystem::path path_;
  int file_ = -1;                  // -1: no journal is kept
  std::uint64_t end_ = 0;          // of the records taken or appended
  std::uint64_t index_ = 0;        // of the next batch
  std::uint64_t stored_ = 0;       // batches that the file seems to hold
  std::uint64_t input_bytes_ = 0;  // where the last batch of the file ends
  std::uint64_t taken_bytes_ = 0;  // where the last batch taken ends
};

}  // namespace quench
