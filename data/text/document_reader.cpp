#include "data/text/document_reader.h"

#include <utility>

#include "core/system/check.h"
#include "core/system/file.h"
#include "data/files/text_input.h"
#include "data/text/record_reader.h"
#include "data/text/text_format.h"

namespace quench {
namespace {

constexpr std::uint64_t kMaxTemplateBytes = std::uint64_t{1} << 20;

}  // namespace

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
  const auto use = [&](const Tokenizer::ChatTemplateText& templates) {
    options.chat_renderer =
        std::make_shared<ChatRenderer>(templates, tokenizer, options.chat_date, options.chat_template_kwargs);
  };
  if (!options.chat_template_file.empty()) {
    use({.text = read_file(options.chat_template_file, kMaxTemplateBytes),
         .source = options.chat_template_file.string()});
  } else if (options.chat_template == nullptr && tokenizer.chat_template()) {
    use(*tokenizer.chat_template());
  } else {
    QUENCH_CHECK_AS(ErrorCode::bad_config, options.chat_date.empty(),
                    "a chat date ({}) belongs to a Jinja template, and none is used", options.chat_date);
    QUENCH_CHECK_AS(ErrorCode::bad_config,
                    options.chat_template_kwargs.is_null() || options.chat_template_kwargs == Json::object(),
                    "chat template arguments ({}) belong to a Jinja template, and none is used",
                    options.chat_template_kwargs.dump());
    if (options.chat_template == nullptr) options.chat_template = fitting_chat_template(tokenizer);
    options.special_tokens = SpecialTokens(tokenizer);
  }
}

std::unique_ptr<DocumentReader> open_document_reader(const std::filesystem::path& path, const ReaderOptions& options) {
  QUENCH_CHECK(options.max_document_bytes > 0, "{}: documents of at most 0 bytes", path.string());
  const TextFormat* format = options.format != nullptr ? options.format : text_format_of(path);
  if (format == nullptr && path != kStandardInput) (void)TextInput(path).peek();  // unsupported compression
  QUENCH_CHECK_AS(ErrorCode::bad_config, format != nullptr,
                  "{}: the text format is unknown; set the format to one of {}",
                  path == kStandardInput ? "standard input" : path.string(), fmt::join(text_formats().names(), ", "));
  const TextFormat* stored = options.format != nullptr ? text_format_by_bytes(path) : nullptr;
  QUENCH_CHECK_AS(ErrorCode::bad_config, stored == nullptr || stored == format,
                  "{}: the format is set to {}, but the content looks like {}; set the format to auto", path.string(),
                  format->name, stored != nullptr ? stored->name : "");
  if (format->open_records == nullptr) return format->open(path, options);
  return open_record_reader(
      format->open_records(path, {.max_record_bytes = options.max_document_bytes, .on_block = options.on_block}),
      path == kStandardInput ? "standard input" : path.string(), options);
}

}  // namespace quench
