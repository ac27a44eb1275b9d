#include "data/text/document_reader.h"

#include <array>
#include <utility>

#include "core/system/check.h"
#include "core/system/file.h"
#include "data/text/jsonl_reader.h"
#include "data/text/text_input.h"
#include "data/text/text_reader.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{1} << 20;

template <class T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

constexpr Names<DocumentFormat, 3> kFormats = {
    {{DocumentFormat::automatic, "auto"}, {DocumentFormat::text, "text"}, {DocumentFormat::jsonl, "jsonl"}}};
constexpr Names<TextSplit, 3> kSplits = {
    {{TextSplit::file, "file"}, {TextSplit::blank_line, "blank_line"}, {TextSplit::marker, "marker"}}};
constexpr Names<RecordKind, 7> kKinds = {{{RecordKind::automatic, "auto"},
                                          {RecordKind::text, "text"},
                                          {RecordKind::tokens, "tokens"},
                                          {RecordKind::messages, "messages"},
                                          {RecordKind::sharegpt, "sharegpt"},
                                          {RecordKind::alpaca, "alpaca"},
                                          {RecordKind::completion, "completion"}}};
constexpr Names<BadRecord, 2> kPolicies = {{{BadRecord::error, "error"}, {BadRecord::skip, "skip"}}};

template <class T, std::size_t N>
std::string_view name_of(const Names<T, N>& names, T value) noexcept {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "unknown";
}

template <class T, std::size_t N>
T value_of(const Names<T, N>& names, std::string_view what, std::string_view text) {
  std::string known;
  for (const auto& [value, name] : names) {
    if (name == text) return value;
    known += known.empty() ? "" : ", ";
    known += name;
  }
  QUENCH_FAIL(ErrorCode::bad_config, "unknown {} '{}'; known: {}", what, text, known);
}

}  // namespace

DocumentFormat document_format_from_string(std::string_view name) {
  return value_of(kFormats, "text format", name);
}
TextSplit text_split_from_string(std::string_view name) {
  return value_of(kSplits, "document split", name);
}
RecordKind record_kind_from_string(std::string_view name) {
  return value_of(kKinds, "record kind", name);
}
BadRecord bad_record_from_string(std::string_view name) {
  return value_of(kPolicies, "bad record policy", name);
}
std::string_view to_string(DocumentFormat format) noexcept {
  return name_of(kFormats, format);
}
std::string_view to_string(TextSplit split) noexcept {
  return name_of(kSplits, split);
}
std::string_view to_string(RecordKind kind) noexcept {
  return name_of(kKinds, kind);
}
std::string_view to_string(BadRecord policy) noexcept {
  return name_of(kPolicies, policy);
}

void ReadReport::add(const ReadReport& other) {
  documents += other.documents;
  empty += other.empty;
  bad_records += other.bad_records;
  for (const std::string& bad : other.first_bad)
    if (first_bad.size() < 10) first_bad.push_back(bad);
}

void DocumentReader::bad_record(BadRecord policy, const std::string& origin, const std::string& reason) {
  QUENCH_CHECK_AS(ErrorCode::corrupt, policy == BadRecord::skip, "{}: {}", origin, reason);
  ++report_.bad_records;
  if (report_.first_bad.size() < 10) report_.first_bad.push_back(origin + ": " + reason);
}

std::vector<std::string> record_kind_names() {
  std::vector<std::string> names;
  for (const auto& [value, name] : kKinds) names.emplace_back(name);
  return names;
}

void set_chat_template(ReaderOptions& options, const std::string& name_or_path) {
  options.chat_template = ChatTemplate::automatic;
  options.chat_template_file.clear();
  if (is_chat_template_file(name_or_path))
    options.chat_template_file = name_or_path;
  else
    options.chat_template = chat_template_from_string(name_or_path);
}

std::string chat_template_text(const std::string& name_or_path) {
  if (is_chat_template_file(name_or_path)) return read_file(name_or_path, kMaxTemplateBytes);
  return std::string(jinja_text(chat_template_from_string(name_or_path)));
}

void resolve_chats(ReaderOptions& options, const Tokenizer& tokenizer) {
  if (options.chat_renderer) return;
  const auto use = [&](std::string_view text, const std::string& source) {
    options.chat_renderer = std::make_shared<ChatRenderer>(text, source, tokenizer, options.chat_date);
  };
  if (!options.chat_template_file.empty()) {
    use(read_file(options.chat_template_file, kMaxTemplateBytes), options.chat_template_file.string());
  } else if (options.chat_template == ChatTemplate::automatic && tokenizer.chat_template()) {
    use(tokenizer.chat_template()->text, tokenizer.chat_template()->source);
  } else {
    QUENCH_CHECK_AS(ErrorCode::bad_config, options.chat_date.empty(),
                    "a chat date ({}) belongs to a Jinja template, and none is used", options.chat_date);
    options.chat_template = resolve_chat_template(options.chat_template, tokenizer);
  }
}

std::optional<DocumentFormat> document_format_of(const std::filesystem::path& path) {
  const std::string extension = text_extension(path);
  if (extension == ".jsonl" || extension == ".ndjson" || extension == ".json") return DocumentFormat::jsonl;
  if (extension == ".txt" || extension == ".text" || extension == ".md") return DocumentFormat::text;
  return std::nullopt;
}

std::unique_ptr<DocumentReader> open_document_reader(const std::filesystem::path& path, const ReaderOptions& options) {
  QUENCH_CHECK(options.max_document_bytes > 0, "{}: documents of at most 0 bytes", path.string());
  const auto format = options.format == DocumentFormat::automatic ? document_format_of(path) : options.format;
  QUENCH_CHECK_AS(ErrorCode::bad_config, format,
                  "{}: cannot tell from the name whether this is text or JSON lines; set the format to one of them",
                  path == kStandardInput ? "standard input" : path.string());
  return *format == DocumentFormat::jsonl ? open_jsonl_reader(path, options) : open_text_reader(path, options);
}

}  // namespace quench
