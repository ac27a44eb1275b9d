#include "data/files/csv_source.h"

#include <set>

#include "core/system/check.h"
#include "core/system/utf8.h"
#include "data/files/text_blocks.h"

namespace quench {
namespace {

constexpr std::size_t kMaxCells = 65536;  // per row

char separator_of(std::string_view start) {
  std::string outside;
  bool quoted = false;
  for (const char c : start) {
    if (c == '"') quoted = !quoted;
    if ((c == '\n' || c == '\r') && !quoted) break;
    if (!quoted) outside += c;
  }
  for (const char separator : {',', ';', '\t'})
    if (outside.find(separator) != std::string::npos) return separator;
  return ',';
}

class CsvRecords final : public RecordSource {
 public:
  CsvRecords(std::unique_ptr<TextInput> input, char separator, const RecordSourceOptions& options)
      : input_(std::move(input)), blocks_(*input_), separator_(separator), limit_(options.max_record_bytes) {
    QUENCH_CHECK_AS(ErrorCode::corrupt, read_row() && row_fault_.empty(),
                    "{}: no line with the names of its columns{}{}", input_->name(), row_fault_.empty() ? "" : ": ",
                    row_fault_);
    columns_ = cells_;
    std::set<std::string_view> names;
    for (const std::string& column : columns_)
      QUENCH_CHECK_AS(ErrorCode::corrupt, names.insert(column).second, "{}: two columns have the name \"{}\"",
                      input_->name(), column);
  }

  bool next(Record& record) override {
    if (!read_row()) return false;
    record = {.origin = fmt::format("{}:{}", input_->name(), row_line_), .fault = row_fault_};
    if (record.fault.empty() && cells_.size() != columns_.size())
      record.fault = fmt::format("{} cells for {} columns", cells_.size(), columns_.size());
    if (!record.fault.empty()) return true;
    Json::Object object;
    object.reserve(columns_.size());
    for (std::size_t i = 0; i < columns_.size(); ++i) object.emplace_back(columns_[i], std::move(cells_[i]));
    record.value = std::move(object);
    return true;
  }
  [[nodiscard]] std::uint64_t consumed() const override { return blocks_.consumed(); }
  [[nodiscard]] const std::vector<std::string>& columns() const override { return columns_; }

 private:
  // Next non-empty row; false at the end.
  bool read_row() {
    while (blocks_.peek() == '\n' || blocks_.peek() == '\r') blocks_.take();
    if (blocks_.peek() < 0) return false;
    cells_.clear();
    row_fault_.clear();
    row_line_ = blocks_.line();
    bytes_ = 0;
    while (read_cell()) {
    }
    return true;
  }

  void fault(std::string reason) {
    if (row_fault_.empty()) row_fault_ = std::move(reason);
  }

  void keep(std::string& cell, int c) {
    if (bytes_ > limit_) return;
    if (++bytes_ <= limit_) {
      cell += static_cast<char>(c);
      return;
    }
    fault(fmt::format("a row of more than {} bytes", limit_));
    cell = std::string();
    cells_ = {};
  }

  // Cell and separator; false at the row's end.
  bool read_cell() {
    std::string cell;
    if (blocks_.peek() == '"') read_quoted(cell);
    int c = blocks_.peek();
    for (; c >= 0 && c != separator_ && c != '\n' && c != '\r'; c = blocks_.peek()) {
      blocks_.take();
      keep(cell, c);
    }
    if (c >= 0) blocks_.take();
    if (c == '\r' && blocks_.peek() == '\n') blocks_.take();
    if (after_quote_ < cell.size()) fault("text after the closing quote of a cell; quotes within a cell are doubled");
    after_quote_ = std::string::npos;
    if (row_fault_.empty()) check(cell);
    if (row_fault_.empty()) cells_.push_back(std::move(cell));
    return c == separator_;
  }

  void read_quoted(std::string& cell) {
    const std::uint64_t line = blocks_.line();
    blocks_.take();
    while (true) {
      const int c = blocks_.peek();
      QUENCH_CHECK_AS(ErrorCode::corrupt, c >= 0, "{}:{}: the quote that begins a cell here is not closed",
                      input_->name(), line);
      blocks_.take();
      if (c == '"') {
        if (blocks_.peek() != '"') break;
        blocks_.take();
      }
      keep(cell, c);
    }
    after_quote_ = cell.size();
  }

  void check(const std::string& cell) {
    if (cells_.size() == kMaxCells) fault(fmt::format("more than {} cells", kMaxCells));
    const std::size_t invalid = find_invalid_utf8(cell);
    if (invalid != std::string::npos)
      fault(fmt::format("column {}: byte {:#04x} is not valid UTF-8", cells_.size() + 1,
                        static_cast<unsigned char>(cell[invalid])));
    if (cell.find('\0') != std::string::npos)
      fault(fmt::format("column {}: a zero byte: is this binary data or UTF-16?", cells_.size() + 1));
  }

  std::unique_ptr<TextInput> input_;
  TextBlocks blocks_;
  char separator_;
  std::uint64_t limit_;
  std::vector<std::string> columns_, cells_;
  std::string row_fault_;
  std::uint64_t row_line_ = 0;
  std::uint64_t bytes_ = 0;
  std::size_t after_quote_ = std::string::npos;  // cell length at its closing quote
};

std::unique_ptr<TextInput> open_table_text(const std::filesystem::path& path, const RecordSourceOptions& options) {
  auto input = std::make_unique<TextInput>(path, options.on_block);
  const std::string_view start = input->peek();
  QUENCH_CHECK_AS(ErrorCode::unsupported, !start.starts_with("\xFF\xFE") && !start.starts_with("\xFE\xFF"),
                  "{}: this is UTF-16 text; convert it to UTF-8", input->name());
  return input;
}

}  // namespace

std::unique_ptr<RecordSource> open_csv_source(const std::filesystem::path& path, const RecordSourceOptions& options) {
  auto input = open_table_text(path, options);
  const char separator = separator_of(input->peek());
  return std::make_unique<CsvRecords>(std::move(input), separator, options);
}

std::unique_ptr<RecordSource> open_tsv_source(const std::filesystem::path& path, const RecordSourceOptions& options) {
  return std::make_unique<CsvRecords>(open_table_text(path, options), '\t', options);
}

}  // namespace quench
