#include "data/text/text_reader.h"

#include <algorithm>
#include <optional>

#include "core/json/json.h"
#include "core/system/check.h"
#include "core/system/utf8.h"
#include "data/files/text_input.h"
#include "data/text/record_notes.h"

namespace quench {
namespace {

constexpr std::size_t kTextBlockBytes = std::size_t{1} << 20;

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}
bool is_space(char c) {
  return is_blank(c) || c == '\n' || c == '\v' || c == '\f';
}

// Cut of an oversized document: before the last line that starts with a visible character, else the last space (both
// token boundaries), else the last whole character.
std::size_t find_cut(std::string_view text) {
  for (std::size_t i = text.size() - 1; i > 0; --i)
    if (text[i - 1] == '\n' && !is_space(text[i])) return i;
  for (std::size_t i = text.size() - 1; i > 0; --i)
    if (text[i] == ' ' && !is_space(text[i - 1])) return i;
  std::size_t cut = text.size();
  while (cut > 1 && (static_cast<unsigned char>(text[cut - 1]) & 0xC0) == 0x80) --cut;
  return cut > 1 ? cut - 1 : text.size();
}

// An object on the first line that is not blank, or an array of objects.
bool begins_with_record(std::string_view text) {
  const auto skip_space = [&] { text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n"), text.size())); };
  skip_space();
  if (text.starts_with('[')) {
    text.remove_prefix(1);
    skip_space();
    if (!text.starts_with('{')) return false;
    text.remove_prefix(1);
    skip_space();
    return text.starts_with('"');
  }
  if (!text.starts_with('{')) return false;
  try {
    return !Json::parse(text.substr(0, text.find('\n'))).as_object().empty();
  } catch (const Error&) {
    return false;
  }
}

std::uint64_t count_lines(std::string_view text, char line_end) {
  return static_cast<std::uint64_t>(std::count(text.begin(), text.end(), line_end));
}

// Empty, or spaces and tabs.
std::size_t leading_blank_lines(std::string_view text, char line_end) {
  std::size_t length = 0;
  for (std::size_t i = 0; i < text.size() && (is_blank(text[i]) || text[i] == '\n'); ++i)
    if (text[i] == line_end) length = i + 1;
  return length;
}

class TextReader final : public DocumentReader {
 public:
  TextReader(const std::filesystem::path& path, const ReaderOptions& options)
      : input_(path, options.on_block), options_(options) {
    QUENCH_CHECK_AS(ErrorCode::bad_config, options.split != TextSplit::marker || !options.marker.empty(),
                    "{}: the document marker is empty", path.string());
    fill();
    QUENCH_CHECK_AS(ErrorCode::unsupported, !buffer_.starts_with("\xFF\xFE") && !buffer_.starts_with("\xFE\xFF"),
                    "{}: this is UTF-16 text; convert it to UTF-8", path.string());
    if (buffer_.starts_with("\xEF\xBB\xBF")) start_ = 3;
    line_end_ = line_end_of(buffer_);
    if (options.notes && options.format == nullptr && begins_with_record(std::string_view(buffer_).substr(start_)))
      options.notes->record_texts.insert(input_.name());
  }

  bool next(Document& document) override {
    while (true) {
      const auto part = next_part();
      if (!part) return false;
      const bool begins = !inside_;
      inside_ = !part->ends;
      std::string_view text = std::string_view(buffer_).substr(part->begin, part->length);
      std::uint64_t line = line_;
      if (options_.split != TextSplit::file) {
        const std::size_t first = begins ? leading_blank_lines(text, line_end_) : 0;
        line += count_lines(text.substr(0, first), line_end_);
        text.remove_prefix(first);
        if (part->ends) text = text.substr(0, text.find_last_not_of("\r\n") + 1);
      }
      line_ += count_lines(std::string_view(buffer_).substr(start_, part->end - start_), line_end_);
      start_ = part->end;
      const bool whole = begins && part->ends;
      if (whole && std::all_of(text.begin(), text.end(), is_space)) {
        if (options_.split != TextSplit::blank_line) ++report_.empty;
        continue;
      }
      // A bad part is a gap: others are returned already or unread.
      if (!check(text, line)) {
        if (whole) continue;
        text = {};
      }
      document = Document{};
      document.origin = fmt::format("{}:{}", input_.name(), line);
      document.begins = begins;
      document.ends = part->ends;
      document.pieces.push_back({.text = std::string(text), .markup = options_.special_text == SpecialText::tokens});
      if (part->ends) ++report_.documents;
      return true;
    }
  }

  [[nodiscard]] std::uint64_t consumed() const override {
    // In the last block, or bytes held before it.
    const std::size_t block = buffer_.size() - block_begin_;
    return start_ < block_begin_ ? held_.at(start_, block_begin_) : span_.at(start_ - block_begin_, block);
  }
  [[nodiscard]] bool has_targets() const override { return false; }

 private:
  struct Part {
    std::size_t begin = 0;  // in the buffer
    std::size_t length = 0;
    std::size_t end = 0;  // after the separator
    bool ends = true;
  };
  struct Separator {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // Or sets at_end_.
  void fill() {
    const std::uint64_t consumed = this->consumed();
    if (start_ >= kTextBlockBytes) {
      buffer_.erase(0, start_);
      scanned_ -= std::min(scanned_, start_);
      start_ = 0;
    }
    held_ = {start_ == 0 ? consumed : held_.begin, input_.position()};
    block_begin_ = buffer_.size();
    buffer_.resize(block_begin_ + kTextBlockBytes);
    span_.begin = input_.position();
    buffer_.resize(block_begin_ + input_.read(std::as_writable_bytes(std::span(buffer_).subspan(block_begin_))));
    span_.end = input_.position();
    at_end_ = buffer_.size() == block_begin_;
  }

  // To the next separator, end of file, or limit; independent of blocks.
  std::optional<Part> next_part() {
    const auto limit = static_cast<std::size_t>(options_.max_document_bytes);
    scanned_ = std::max(scanned_, start_);
    while (true) {
      const auto separator = find_separator();
      const std::size_t text_end = separator ? separator->begin : scanned_;
      if (text_end - start_ > limit) {
        const std::size_t length = find_cut(std::string_view(buffer_).substr(start_, limit));
        return Part{start_, length, start_ + length, false};
      }
      if (separator) {
        scanned_ = separator->end;
        return Part{start_, separator->begin - start_, separator->end, true};
      }
      if (!at_end_) {
        fill();
        continue;
      }
      if (buffer_.size() == start_ && !inside_) return std::nullopt;
      return Part{start_, buffer_.size() - start_, buffer_.size(), true};
    }
  }

  // From scanned_ on, which advances to the earliest possible start.
  std::optional<Separator> find_separator() {
    if (options_.split == TextSplit::blank_line) return find_blank_line();
    if (options_.split == TextSplit::marker) {
      const std::size_t at = buffer_.find(options_.marker, scanned_);
      if (at != std::string::npos) return Separator{at, at + options_.marker.size()};
    }
    const std::size_t unread = options_.split == TextSplit::marker && !at_end_ ? options_.marker.size() - 1 : 0;
    scanned_ = std::max(scanned_, buffer_.size() - std::min(buffer_.size(), unread));
    return std::nullopt;
  }

  // Line break and blank lines. More may follow in the next block: a document's leading blank lines are dropped. A
  // blank line above the limit is text.
  std::optional<Separator> find_blank_line() {
    for (std::size_t at = buffer_.find(line_end_, scanned_); at != std::string::npos;
         at = buffer_.find(line_end_, at + 1)) {
      std::size_t end = at, line = at + 1, i = line;
      for (; i < buffer_.size() && i - line <= options_.max_document_bytes; ++i) {
        if (buffer_[i] == line_end_) {
          end = i;
          line = i + 1;
        } else if (!is_blank(buffer_[i])) {
          break;
        }
      }
      if (end > at) return Separator{at, end + 1};
      if (i == buffer_.size() && i - line <= options_.max_document_bytes && !at_end_) {
        scanned_ = at;
        return std::nullopt;
      }
    }
    scanned_ = buffer_.size();
    return std::nullopt;
  }

  bool check(std::string_view text, std::uint64_t line) {
    const std::size_t invalid = find_invalid_utf8(text);
    const std::size_t zero = text.find('\0');
    if (invalid == std::string_view::npos && zero == std::string_view::npos) return true;
    const std::size_t at = std::min(invalid, zero);
    const std::uint64_t bad_line = line + count_lines(text.substr(0, at), line_end_);
    bad_record(options_.on_bad_record, fmt::format("{}:{}", input_.name(), bad_line),
               zero < invalid ? std::string("a zero byte: is this binary data or UTF-16?")
                              : fmt::format("byte {:#04x} is not valid UTF-8", static_cast<unsigned char>(text[at])));
    return false;
  }

  TextInput input_;
  ReaderOptions options_;
  std::string buffer_;
  std::size_t block_begin_ = 0;  // last block in the buffer
  StoredSpan held_, span_;       // spans of earlier buffer content, and of the block
  bool at_end_ = false;
  std::size_t start_ = 0;    // not returned
  std::size_t scanned_ = 0;  // no earlier separator
  std::uint64_t line_ = 1;
  char line_end_ = '\n';
  bool inside_ = false;  // after a partial document
};

}  // namespace

std::unique_ptr<DocumentReader> open_text_reader(const std::filesystem::path& path, const ReaderOptions& options) {
  return std::make_unique<TextReader>(path, options);
}

}  // namespace quench
