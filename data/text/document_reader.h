#pragma once
// Documents from files of text and records, with a policy for records that cannot be used.

#include <cstdint>
#include <filesystem>
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
  const TextFormat* format = nullptr;  // null: by the file's name
  TextSplit split = TextSplit::file;
  std::string marker = "<|endoftext|>";
  // Of records; null: decided by the first record that can be used, from its keys.
  const RecordKind* record = nullptr;
  std::string field = "text";
  ColumnNames columns{};  // of records, where they have other names than those of their kind
  // Null is resolved where the tokenizer is known (resolve_chats); chats are refused without.
  const ChatTemplate* chat_template = nullptr;
  std::filesystem::path chat_template_file{};  // a Jinja template, in place of those
  std::string chat_date{};                     // "2024-07-26": what the template's strftime_now tells
  Json chat_template_kwargs{};                 // arguments of the template, an object; null: none
  TrainOn train_on = TrainOn::assistant;
  SpecialText special_text = SpecialText::automatic;
  std::shared_ptr<const ChatRenderer> chat_renderer{};  // set by resolve_chats; null: chat_template
  BadRecord on_bad_record = BadRecord::error;
  // A JSON line above this is a bad record; a text document above it comes in parts, cut at the start of a line.
  std::uint64_t max_document_bytes = std::uint64_t{64} << 20;
  std::int64_t vocab_size = 0;           // ids of `tokens` records must be below it; 0: not checked here
  SpecialTokens special_tokens{};        // of the tokenizer, set by resolve_chats with a written template
  std::shared_ptr<RecordNotes> notes{};  // counts what readers of these options find; null: nothing is counted
};

struct ReadReport {
  std::uint64_t documents = 0;
  std::uint64_t empty = 0;             // blank documents, left out
  std::uint64_t bad_records = 0;       // skipped
  std::vector<std::string> first_bad;  // "file:line: reason" of at most ten of them
  void add(const ReadReport& other);
};

class DocumentReader {
 public:
  virtual ~DocumentReader() = default;
  // The next document or part of one; false at the end. Bad records (malformed JSON, text that is not UTF-8 or holds a
  // zero byte, a missing, null or mistyped field, a line above the limit) throw Error(corrupt) "file:line: reason" or
  // are counted and skipped, as the options say. Throws io when the file changes while it is read, bad_config for chats
  // without a template.
  virtual bool next(Document& document) = 0;
  // Bytes of the file read so far.
  [[nodiscard]] virtual std::uint64_t consumed() const = 0;
  // Whether some tokens of the documents may be no targets.
  [[nodiscard]] virtual bool has_targets() const = 0;
  [[nodiscard]] const ReadReport& report() const noexcept { return report_; }

 protected:
  // Throws or counts, by the policy.
  void bad_record(BadRecord policy, const std::string& origin, const std::string& reason);
  ReadReport report_;
};

// Sets chat_template to a name of chat_template_names(), or chat_template_file to a path that ends in .jinja. Throws
// bad_config for anything else.
void set_chat_template(ReaderOptions& options, const std::string& name_or_path);
// The Jinja text of the template that such a name or path chooses; empty for "auto".
[[nodiscard]] std::string chat_template_text(const std::string& name_or_path);
// Chooses how chats become tokens: the template of chat_template_file; that of chat_template; for none, the one
// that came with the tokenizer, else the written one whose special tokens it has. Throws what ChatRenderer throws, and
// bad_config for a date or arguments without a Jinja template that could read them.
void resolve_chats(ReaderOptions& options, const Tokenizer& tokenizer);

// Throws bad_config when the format is automatic and the name does not say, and what the formats' readers throw.
[[nodiscard]] std::unique_ptr<DocumentReader> open_document_reader(const std::filesystem::path& path,
                                                                   const ReaderOptions& options);

}  // namespace quench
