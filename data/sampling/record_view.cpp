#include "data/sampling/record_view.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/system/check.h"
#include "core/system/printable.h"

namespace quench {
namespace {

bool continues_character(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

void count_tokens(const RowLimit& limit, RecordView& record) {
  record.tokens = std::ssize(record.encoded.ids);
  const std::int64_t most = limit.seq_len + 1;
  if (limit.seq_len > 0 && record.tokens > most) {
    if (limit.on_long == LongDocuments::drop) record.dropped = record.tokens;
    if (limit.on_long == LongDocuments::truncate) record.dropped = record.tokens - most;
  }
  const auto trained = [&](std::int64_t end) {
    std::int64_t count = 0;
    for (std::int64_t i = 1; i < end; ++i)
      count += record.encoded.targets.empty() || record.encoded.targets[static_cast<std::size_t>(i)] != 0 ? 1 : 0;
    return count;
  };
  record.trained = trained(record.tokens - record.dropped);
  // Truncated without a target: dropped.
  if (record.dropped > 0 && record.trained == 0) record.dropped = record.tokens;
}

}  // namespace

bool RecordView::is_trained(std::size_t i) const {
  return i > 0 && static_cast<std::int64_t>(i) < tokens - dropped &&
         (encoded.targets.empty() || encoded.targets[i] != 0);
}

RecordView make_record_view(std::string origin, EncodedDocument encoded, const RowLimit& limit) {
  RecordView record{.origin = std::move(origin), .encoded = std::move(encoded)};
  count_tokens(limit, record);
  return record;
}

std::vector<RecordView> read_record(const std::filesystem::path& path, std::int64_t number, const Tokenizer& tokenizer,
                                    const ReaderOptions& reader_options, const EncoderOptions& encoder,
                                    const RowLimit& limit) {
  QUENCH_CHECK_AS(ErrorCode::bad_config, number > 0, "record {}; the first is record 1", number);
  ReaderOptions options = reader_options;
  options.vocab_size = tokenizer.vocab_size();
  resolve_chats(options, tokenizer);
  const std::unique_ptr<DocumentReader> reader = open_document_reader(path, options);
  const std::int64_t together = options.answers == AnswerRecords::pairs ? 2 : 1;
  std::vector<std::vector<Document>> documents;  // parts of the record
  for (std::int64_t at = 0; at < number * together;) {
    Document document;
    QUENCH_CHECK_AS(ErrorCode::bad_config, reader->next(document), "{}: record {} does not exist; the file has {}",
                    path.string(), number, at / together);
    if (document.begins && std::ssize(documents) == together) documents.clear();
    if (document.begins) documents.emplace_back();
    at += document.ends ? 1 : 0;
    documents.back().push_back(std::move(document));
  }
  std::vector<RecordView> views;
  for (const std::vector<Document>& parts : documents) {
    EncodedDocument whole;
    for (const EncodedDocument& part : DocumentEncoder(tokenizer, encoder).encode(parts)) {
      whole.ids.insert(whole.ids.end(), part.ids.begin(), part.ids.end());
      whole.targets.insert(whole.targets.end(), part.targets.begin(), part.targets.end());
    }
    views.push_back(make_record_view(parts.front().origin, std::move(whole), limit));
  }
  return views;
}

std::string marked_text(const Tokenizer& tokenizer, const RecordView& record, std::string_view begin,
                        std::string_view end, std::size_t max_bytes) {
  const std::vector<std::int32_t>& ids = record.encoded.ids;
  const std::string text = tokenizer.decode(ids);
  const std::vector<std::size_t> ends = tokenizer.decoded_ends(ids);
  std::string out;
  std::size_t done = 0;
  const auto write_to = [&](std::size_t at) {
    out += printable(std::string_view(text).substr(done, at - done));
    done = at;
  };
  for (std::size_t i = 0; i < ids.size() && done < max_bytes;) {
    if (!record.is_trained(i)) {
      ++i;
      continue;
    }
    std::size_t first = i > 0 ? ends[i - 1] : 0;
    while (i < ids.size() && record.is_trained(i)) ++i;
    std::size_t last = ends[i - 1];
    while (first > done && first < text.size() && continues_character(text[first])) --first;
    while (last < text.size() && continues_character(text[last])) ++last;
    if (last <= done) continue;
    write_to(std::max(first, done));
    out += begin;
    write_to(std::min(last, std::max(max_bytes, done)));
    out += end;
  }
  if (done < text.size() && done < max_bytes) write_to(std::min(text.size(), max_bytes));
  if (done < text.size()) out += "...";
  return out;
}

std::string record_counts(const RecordView& record, const RowLimit& limit) {
  std::string text = fmt::format("{} tokens, {} trained, {} dropped", record.tokens, record.trained, record.dropped);
  if (record.dropped > 0)
    text += fmt::format(" (data.on_long {} at data.seq_len {})", enum_name(limit.on_long), limit.seq_len);
  return text;
}

}  // namespace quench
