#pragma once
// A record as seen by training.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/sampling/long_documents.h"
#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"

namespace quench {

struct RecordView {
  std::string origin;  // "file:line"
  EncodedDocument encoded;
  // The first token is never a target.
  std::int64_t tokens = 0, trained = 0;
  std::int64_t dropped = 0;  // by data.on_long
  // Of the remaining record.
  [[nodiscard]] bool is_trained(std::size_t i) const;
};

// Limit of packing; seq_len 0: unlimited.
struct RowLimit {
  std::int64_t seq_len = 0;
  LongDocuments on_long = LongDocuments::split;
};

[[nodiscard]] RecordView make_record_view(std::string origin, EncodedDocument encoded, const RowLimit& limit);

// `number`: 1-based over valid records. Of a pair both answers, the chosen one first. Throws the reader's errors,
// bad_config past the last record.
[[nodiscard]] std::vector<RecordView> read_record(const std::filesystem::path& path, std::int64_t number,
                                                  const Tokenizer& tokenizer, const ReaderOptions& reader,
                                                  const EncoderOptions& encoder, const RowLimit& limit);

// Printable (core/system/printable.h), with `begin` and `end` around target tokens, at character boundaries; "..."
// after `max_bytes`.
[[nodiscard]] std::string marked_text(const Tokenizer& tokenizer, const RecordView& record, std::string_view begin,
                                      std::string_view end, std::size_t max_bytes = SIZE_MAX);
[[nodiscard]] std::string record_counts(const RecordView& record, const RowLimit& limit);

// Without colours.
inline constexpr std::string_view kTrainedBegin = "[[", kTrainedEnd = "]]";

}  // namespace quench
