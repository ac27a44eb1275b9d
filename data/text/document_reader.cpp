#include "data/text/document_reader.h"

#include <array>
#include <utility>

#include "core/system/check.h"
#include "core/system/file.h"
#include "data/text/text_format.h"
#include "data/text/text_input.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{1} << 20;

template <class T, std::size_t N>
using Names = std::array<std::pair<T, std::string_view>, N>;

constexpr Names<TextSplit, 3> kSplits = {
    {{TextSplit::file, "file"}, {TextSplit::blank_line, "blank_line"}, {TextSplit::marker, "marker"}}};
constexpr Names<BadRecord, 2> kPolicies = {{{BadRecord::error, "error"}, {BadRecord::skip, "skip"}}};

template <class T, std::size_t N>
std::string_view name_of(const Names<T, N>& names, T value) noexcept {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  return "unknown";
}

template <class T, std::size_t N>
std::vector<std::string> names_of(const Names<T, N>& names) {
  std::vector<std::string> list;
  for (const auto& [value, name] : names) list.emplace_back(name);
  return list;
}

template <class T, std::size_t N>
T value_of(const Names<T, N>& names, std::string_view what, std::string_view text) {
  for (const auto& [value, name] : names)
    if (name == text) return value;
  QUENCH_FAIL(ErrorCode::bad_config, "unknown {} '{}'; known: {}", what, text, fmt::join(names_of(names), ", "));
}

}  // namespace

std::vector<std::string> text_split_names() {
  return names_of(kSplits);
}
std::vector<std::string> bad_record_names() {
  return names_of(kPolicies);
}
TextSplit text_split_from_string(std::string_view name) {
  return value_of(kSplits, "document split", name);
}
BadRecord bad_record_from_string(std::string_view name) {
  return value_of(kPolicies, "bad record policy", name);
}
std::string_view to_string(TextSplit split) noexcept {
  return name_of(kSplits, split);
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

void set_chat_template(ReaderOptions& options, const std::string& name_or_path) {
  options.chat_template = nullptr;
  options.chat_template_file.clear();
  if (is_chat_template_file(name_or_path))
    options.chat_template_file = name_or_path;
  else
    options.chat_template = chat_template_from_string(name_or_path);
}

std::string chat_template_text(const std::string& name_or_path) {
  if (is_chat_template_file(name_or_path)) return read_file(name_or_path, kMaxTemplateBytes);
  const ChatTemplate* chat_template = chat_template_from_string(name_or_path);
  return chat_template != nullptr ? chat_template->jinja : std::string();
}

void resolve_chats(ReaderOptions& options, const Tokenizer& tokenizer) {
  if (options.chat_renderer) return;
  const auto use = [&](std::string_view text, const std::string& source) {
    options.chat_renderer = std::make_shared<ChatRenderer>(text, source, tokenizer, options.chat_date);
  };
  if (!options.chat_template_file.empty()) {
    use(read_file(options.chat_template_file, kMaxTemplateBytes), options.chat_template_file.string());
  } else if (options.chat_template == nullptr && tokenizer.chat_template()) {
    use(tokenizer.chat_template()->text, tokenizer.chat_template()->source);
  } else {
    QUENCH_CHECK_AS(ErrorCode::bad_config, options.chat_date.empty(),
                    "a chat date ({}) belongs to a Jinja template, and none is used", options.chat_date);
    if (options.chat_template == nullptr) options.chat_template = fitting_chat_template(tokenizer);
  }
}

std::unique_ptr<DocumentReader> open_document_reader(const std::filesystem::path& path, const ReaderOptions& options) {
  QUENCH_CHECK(options.max_document_bytes > 0, "{}: documents of at most 0 bytes", path.string());
  const TextFormat* format = options.format != nullptr ? options.format : text_format_of(path);
  QUENCH_CHECK_AS(ErrorCode::bad_config, format != nullptr,
                  "{}: cannot tell from the name what format of text this is; set the format to one of {}",
                  path == kStandardInput ? "standard input" : path.string(), fmt::join(text_formats().names(), ", "));
  return format->open(path, options);
}

}  // namespace quench
