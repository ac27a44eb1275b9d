#include "data/files/json_source.h"

#include <algorithm>

#include "core/system/check.h"
#include "data/files/line_reader.h"
#include "data/files/text_blocks.h"

namespace quench {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

// Parser messages are "<origin>:<line>:<column>: what", relative to the record.
std::string parse_fault(const std::string& message, const std::string& origin) {
  if (!message.starts_with(origin + ":")) return message;
  const std::string_view rest = std::string_view(message).substr(origin.size() + 1);
  const std::size_t colon = rest.find(':');
  if (colon == std::string_view::npos) return message;
  const std::string_view line = rest.substr(0, colon), column = rest.substr(colon + 1);
  return line == "1" ? fmt::format("column {}", column) : fmt::format("line {} of the record, column {}", line, column);
}

void parse_record(const std::string& text, Record& record) {
  try {
    record.value = Json::parse(text, {.max_bytes = text.size(), .source = record.origin});
  } catch (const Error& error) {
    record.fault = parse_fault(error.what(), record.origin);
  }
}

class JsonLines final : public RecordSource {
 public:
  JsonLines(std::unique_ptr<TextInput> input, const RecordSourceOptions& options)
      : input_(std::move(input)), lines_(*input_, options.max_record_bytes), limit_(options.max_record_bytes) {}

  bool next(Record& record) override {
    while (lines_.next()) {
      if (!lines_.too_long() && lines_.text().find_first_not_of(kBlanks) == std::string::npos) continue;
      record = {.origin = fmt::format("{}:{}", input_->name(), lines_.number())};
      if (lines_.too_long())
        record.fault = fmt::format("a line of more than {} bytes", limit_);
      else
        parse_record(lines_.text(), record);
      return true;
    }
    return false;
  }
  [[nodiscard]] std::uint64_t consumed() const override { return lines_.consumed(); }

 private:
  std::unique_ptr<TextInput> input_;
  LineReader lines_;
  std::uint64_t limit_;
};

// Elements of one array, or concatenated values.
class JsonValues final : public RecordSource {
 public:
  JsonValues(std::unique_ptr<TextInput> input, const RecordSourceOptions& options)
      : input_(std::move(input)), blocks_(*input_), limit_(options.max_record_bytes) {
    blocks_.skip_blanks();
    array_ = blocks_.peek() == '[';
    if (array_) blocks_.take();
  }

  bool next(Record& record) override {
    if (ended_) return false;
    blocks_.skip_blanks();
    if (array_ ? at_array_end() : blocks_.peek() < 0) {
      ended_ = true;
      return false;
    }
    record = {.origin = fmt::format("{}:{}", input_->name(), blocks_.line())};
    first_ = false;
    scan_value();
    if (too_long_)
      record.fault = fmt::format("a record of more than {} bytes", limit_);
    else
      parse_record(text_, record);
    return true;
  }
  [[nodiscard]] std::uint64_t consumed() const override { return blocks_.consumed(); }

 private:
  [[noreturn]] void fail(std::string_view reason) const {
    QUENCH_FAIL(ErrorCode::corrupt, "{}:{}: {}", input_->name(), blocks_.line(), reason);
  }

  // Past the comma; true at the array's end, which must be the file's.
  bool at_array_end() {
    if (blocks_.peek() == ']') {
      blocks_.take();
      blocks_.skip_blanks();
      if (blocks_.peek() >= 0) fail("data after the end of the file's JSON array");
      return true;
    }
    if (!first_ && blocks_.peek() == ',') {
      blocks_.take();
      blocks_.skip_blanks();
      if (blocks_.peek() == ',' || blocks_.peek() == ']') fail("expected a record after the comma");
    } else if (!first_ && blocks_.peek() >= 0) {
      fail("expected \",\" or \"]\" after a record of the JSON array");
    }
    if (blocks_.peek() < 0) fail("the file's JSON array is not closed: the file is truncated");
    return false;
  }

  void keep(int c) {
    blocks_.take();
    if (too_long_) return;
    text_ += static_cast<char>(c);
    too_long_ = text_.size() > limit_;
    if (too_long_) text_ = std::string();
  }

  // Matches brackets and quotes; the parser validates.
  void scan_value() {
    text_.clear();
    too_long_ = false;
    std::uint64_t depth = 0;
    bool quoted = false;
    while (true) {
      const int c = blocks_.peek();
      if (c < 0) {
        if (depth > 0 || quoted) fail("the record is not closed: the file is truncated");
        return;
      }
      if (quoted) {
        keep(c);
        if (c == '\\') {
          if (const int escaped = blocks_.peek(); escaped >= 0) keep(escaped);
        } else if (c == '"') {
          quoted = false;
          if (depth == 0) return;
        }
        continue;
      }
      const bool closes = c == '}' || c == ']';
      if (depth == 0 && !text_.empty() && (closes || c == ',' || kBlanks.find(static_cast<char>(c)) != kBlanks.npos))
        return;
      keep(c);
      quoted = c == '"';
      if (c == '{' || c == '[') ++depth;
      if (closes && (depth == 0 || --depth == 0)) return;
    }
  }

  std::unique_ptr<TextInput> input_;
  TextBlocks blocks_;
  std::uint64_t limit_;
  bool array_ = false, first_ = true, ended_ = false;
  std::string text_;
  bool too_long_ = false;
};

// True for an array, or a multi-line first record.
bool is_json_values(std::string_view start) {
  if (start.starts_with("\xEF\xBB\xBF")) start.remove_prefix(3);
  start.remove_prefix(std::min(start.size(), start.find_first_not_of(kBlanks)));
  if (start.starts_with('[')) return true;
  const std::size_t end = start.find_first_of("\r\n");
  return start.starts_with('{') && end != std::string_view::npos &&
         start.substr(1, end - 1).find_first_not_of(kBlanks) == std::string_view::npos;
}

}  // namespace

std::unique_ptr<RecordSource> open_json_source(const std::filesystem::path& path, const RecordSourceOptions& options) {
  auto input = std::make_unique<TextInput>(path, options.on_block);
  if (is_json_values(input->peek())) return std::make_unique<JsonValues>(std::move(input), options);
  return std::make_unique<JsonLines>(std::move(input), options);
}

}  // namespace quench
