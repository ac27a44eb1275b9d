#pragma once
// A record of a data file as training reads it: its text, and which of its tokens are trained on.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "data/sampling/long_documents.h"
#include "data/text/document_encoder.h"
#include "data/text/document_reader.h"

namespace quench {

struct RecordView {
  std::string origin;  // "file:line"
  EncodedDocument encoded;
  // Counts of tokens. A target is predicted from the tokens before it, so that the first token is none.
  std::int64_t tokens = 0, trained = 0;
  std::int64_t dropped = 0;  // by data.on_long
  // Whether training predicts token i of what is left of the record.
  [[nodiscard]] bool is_trained(std::size_t i) const;
};

// Of the rows that records are packed into; seq_len 0: of any length.
struct RowLimit {
  std::int64_t seq_len = 0;
  LongDocuments on_long = LongDocuments::split;
};

[[nodiscard]] RecordView make_record_view(std::string origin, EncodedDocument encoded, const RowLimit& limit);

// Record `number` of a file, counted from 1 over the records that can be used. Throws what the reader throws,
// bad_config where the file has fewer.
[[nodiscard]] RecordView read_record(const std::filesystem::path& path, std::int64_t number, const Tokenizer& tokenizer,
                                     const ReaderOptions& reader, const EncoderOptions& encoder, const RowLimit& limit);

// The record's decoded text, printable (core/system/printable.h), with `begin` and `end` around runs of trained tokens.
// Marks stand between whole characters. A text of more than `max_bytes` ends with "...".
[[nodiscard]] std::string marked_text(const Tokenizer& tokenizer, const RecordView& record, std::string_view begin,
                                      std::string_view end, std::size_t max_bytes = SIZE_MAX);
// "46 tokens, 12 trained, 0 dropped"
[[nodiscard]] std::string record_counts(const RecordView& record, const RowLimit& limit);

// How trained tokens are marked where there are no colours.
inline constexpr std::string_view kTrainedBegin = "[[", kTrainedEnd = "]]";

}  // namespace quench
