#pragma once
// Documents from text and record files, with an error policy for bad records.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/chat_renderer.h"
#include "data/text/chat_template.h"
#include "data/text/document.h"
#include "data/text/policies.h"
#include "data/text/record_columns.h"
#include "data/text/record_notes.h"

namespace quench {

struct RecordKind;  // data/text/record_kind.h
struct TextFormat;  // data/text/text_format.h

struct ReaderOptions {
  const TextFormat* format = nullptr;  // null: by file name
  TextSplit split = TextSplit::file;
  std::string marker = "<|endoftext|>";
  // Null: detected from the keys of the first valid record.
  const RecordKind* record = nullptr;
  std::string field = "text";
  AnswerRecords answers = AnswerRecords::none;  // other than none: in place of `record`
  ColumnNames columns{};                        // column renames of records
  // Null is resolved with the tokenizer (resolve_chats); unresolved, chats are rejected.
  const ChatTemplate* chat_template = nullptr;
  std::filesystem::path chat_template_file{};  // Jinja template file; overrides chat_template
  std::string chat_date{};                     // "2024-07-26": date of the template's strftime_now
  Json chat_template_kwargs{};                 // template arguments, an object; null: none
  TrainOn train_on = TrainOn::assistant;
  SpecialText special_text = SpecialText::automatic;
  std::shared_ptr<const ChatRenderer> chat_renderer{};  // set by resolve_chats; null: chat_template
  BadRecord on_bad_record = BadRecord::error;
  // Limit: a longer JSON line is a bad record, a longer text document is split at line starts.
  std::uint64_t max_document_bytes = std::uint64_t{64} << 20;
  std::int64_t vocab_size = 0;           // exclusive upper bound of ids in `tokens` records; 0: unchecked
  SpecialTokens special_tokens{};        // the tokenizer's, set by resolve_chats with a built-in template
  std::shared_ptr<RecordNotes> notes{};  // counters of readers with these options; null: off
  std::function<void()> on_block{};      // as in RecordSourceOptions
};

struct ReadReport {
  std::uint64_t documents = 0;
  std::uint64_t empty = 0;             // blank documents
  std::uint64_t bad_records = 0;       // skipped
  std::vector<std::string> first_bad;  // "file:line: reason", at most ten
  void add(const ReadReport& other);
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // Next document or part; false at the end. Bad records (malformed JSON, invalid UTF-8, zero bytes, missing, null or
  // mistyped field, line above the limit) throw Error(corrupt) "file:line: reason" or are counted and skipped, by
  // policy. Throws io if the file changes, bad_config for chats without a template.
  virtual bool next(Document& document) = 0;
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
  // True if some tokens may be masked from the loss.
  [[nodiscard]] virtual bool has_targets() const = 0;
  // True for a file of records without a single one, good or bad, by which their kind would be told. Then next() throws
  // corrupt: a part of a data set may be empty, the whole may not.
  [[nodiscard]] virtual bool is_empty() const { return false; }
  [[nodiscard]] const ReadReport& report() const noexcept { return report_; }

 protected:
  void bad_record(BadRecord policy, const std::string& origin, const std::string& reason);
  ReadReport report_;
};

// Sets chat_template for a name of chat_template_names(), chat_template_file for a path ending in .jinja; throws
// bad_config otherwise.
void set_chat_template(ReaderOptions& options, const std::string& name_or_path);
// Jinja source of the template of such a name or path; empty for "auto".
[[nodiscard]] std::string chat_template_text(const std::string& name_or_path);
// Chat template resolution: chat_template_file, else chat_template, else the tokenizer's own, else the built-in one
// matching its special tokens. Throws the errors of ChatRenderer, and bad_config for a date or arguments without a
// Jinja template that reads them.
void resolve_chats(ReaderOptions& options, const Tokenizer& tokenizer);

// Throws bad_config for a name without a known format, and the readers' errors.
[[nodiscard]] std::unique_ptr<DocumentReader> open_document_reader(const std::filesystem::path& path,
                                                                   const ReaderOptions& options);

}  // namespace quench
