#include "data/files/table_source.h"

#include <array>
#include <set>

#include "core/system/log.h"
#include "core/system/utf8.h"
#include "data/files/arrow_library.h"
#include "data/files/arrow_values.h"
#include "data/files/text_input.h"
#include "data/formats/binary_file.h"
#include "data/formats/token_format.h"

namespace quench {
namespace {

constexpr std::string_view kParquetMagic = "PAR1", kArrowFileMagic = "ARROW1", kStreamMagic = "\xFF\xFF\xFF\xFF";

// Owner of the plug-in's objects.
template <class T>
struct ArrowOwner : T {
  ArrowOwner() : T{} {}
  ~ArrowOwner() { clear(); }
  ArrowOwner(const ArrowOwner&) = delete;
  ArrowOwner& operator=(const ArrowOwner&) = delete;
  void clear() {
    if (this->release != nullptr) this->release(this);
    this->release = nullptr;
  }
};

class TableRecords final : public RecordSource {
 public:
  TableRecords(const std::filesystem::path& path, QuenchArrowFormat format, std::string_view format_name,
               const RecordSourceOptions& options)
      : name_(path.string()), format_name_(format_name), size_(BinaryFile(path).size()), options_(options) {
    std::string missing;
    arrow_ = arrow_functions(missing);
    QUENCH_CHECK_AS(
        ErrorCode::unsupported, arrow_ != nullptr,
        "{}: Apache Arrow is needed to read {} files, and this program has none ({}); run scripts/setup.sh, "
        "which installs it, and build again, or convert the file: python3 -c \"import pandas as p; "
        "p.read_{}('{}').to_json('{}', orient='records', lines=True)\"",
        name_, format_name, missing, format == quench_parquet ? "parquet" : "feather", name_,
        std::filesystem::path(path).replace_extension(".jsonl").string());
    ArrowOwner<ArrowSchema> schema;
    table_ = arrow_->open(name_.c_str(), format, &schema, error_.data(), error_.size());
    if (table_ == nullptr) fail();
    try {
      type_ = arrow_type(schema);
    } catch (const Error& error) {
      arrow_->close(table_);
      throw Error(error.code(), fmt::format("{}: {}", name_, error.what()), error.where());
    }
    std::vector<std::string> left_out;
    for (const ArrowType& column : type_.children) {
      columns_.push_back(column.name);
      const std::string type = unreadable_type(column);
      if (!type.empty()) left_out.push_back(fmt::format("{} ({})", column.name, type));
      readable_.push_back(type.empty());
    }
    if (!left_out.empty())
      QUENCH_LOG_INFO("{}: columns of types without a form in JSON are left out: {}", name_, fmt::join(left_out, ", "));
  }
  ~TableRecords() override { arrow_->close(table_); }
  TableRecords(const TableRecords&) = delete;
  TableRecords& operator=(const TableRecords&) = delete;

  bool next(Record& record) override {
    while (row_ == rows_)
      if (!next_batch()) return false;
    record = {.origin = fmt::format("{}, row {}", name_, rows_before_ + row_ + 1)};
    try {
      Json::Object object;
      object.reserve(columns_.size());
      ArrowRow row{.limit = options_.max_record_bytes};
      for (std::size_t i = 0; i < columns_.size(); ++i)
        if (readable_[i]) object.emplace_back(columns_[i], column_value(i, row));
      record.value = std::move(object);
    } catch (const Error& error) {
      record.fault = error.what();
    }
    ++row_;
    return true;
  }
  [[nodiscard]] std::uint64_t consumed() const override {
    if (ended_) return size_;
    return StoredSpan{begin_, end_}.at(static_cast<std::uint64_t>(row_), static_cast<std::uint64_t>(rows_));
  }
  [[nodiscard]] const std::vector<std::string>& columns() const override { return columns_; }

 private:
  [[noreturn]] void fail() const {
    QUENCH_FAIL(ErrorCode::corrupt, "{}: the {} file cannot be read: {}", name_, format_name_,
                replace_invalid_utf8(error_.data()));
  }

  // A column is read whole or not at all: no message goes without a part of it.
  Json column_value(std::size_t i, ArrowRow& row) {
    row.holds_bytes = false;
    Json value = arrow_value(type_.children[i], *batch_.children[i], batch_.offset + row_, row);
    if (!row.holds_bytes) return value;
    if (noted_.insert(i).second)
      QUENCH_LOG_INFO("{}, row {}: column {} holds bytes that are no text; rows with such are read without the column",
                      name_, rows_before_ + row_ + 1, columns_[i]);
    return {};
  }

  bool next_batch() {
    if (ended_) return false;
    if (options_.on_block) options_.on_block();
    rows_before_ += rows_;
    row_ = rows_ = 0;
    begin_ = end_;
    batch_.clear();
    const int status = arrow_->next(table_, &batch_, &end_, error_.data(), error_.size());
    if (status < 0) fail();
    ended_ = status == 0;
    if (!ended_) rows_ = batch_.length;
    return !ended_;
  }

  std::string name_;
  std::string_view format_name_;
  std::uint64_t size_;
  RecordSourceOptions options_;
  const QuenchArrowFunctions* arrow_ = nullptr;
  QuenchArrowTable* table_ = nullptr;
  ArrowType type_;
  std::vector<std::string> columns_;
  std::vector<bool> readable_;   // by column
  std::set<std::size_t> noted_;  // columns with bytes
  ArrowOwner<ArrowArray> batch_;
  std::int64_t row_ = 0, rows_ = 0, rows_before_ = 0;  // row numbers of the batch
  std::uint64_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  std::array<char, 1024> error_{};
};

std::string first_bytes_of_table(const std::filesystem::path& path, std::string_view format_name) {
  QUENCH_CHECK_AS(ErrorCode::unsupported, path != kStandardInput,
                  "standard input: {} files need random access; name the file", format_name);
  const BinaryFile file(path);
  std::string start(static_cast<std::size_t>(std::min<std::uint64_t>(256, file.size())), '\0');
  file.read(0, std::as_writable_bytes(std::span(start)));
  return start;
}

[[noreturn]] void refuse_table(const std::filesystem::path& path, std::string_view format_name,
                               std::string_view start) {
  std::string_view guess = file_guess(start);
  if (guess.starts_with("if ")) guess = "its first bytes are those of no known format";
  if (start.starts_with("\x1f\x8b") || start.starts_with("\x28\xb5\x2f\xfd"))
    guess = "it is compressed by gzip or zstd: decompress it (the format is compressed internally)";
  if (start.empty()) guess = "it is empty";
  QUENCH_FAIL(ErrorCode::corrupt, "{}: no {} file, despite its name or format; {}", path.string(), format_name, guess);
}

}  // namespace

std::unique_ptr<RecordSource> open_parquet_source(const std::filesystem::path& path,
                                                  const RecordSourceOptions& options) {
  constexpr std::string_view kName = "Parquet";
  const std::string start = first_bytes_of_table(path, kName);
  if (!start.starts_with(kParquetMagic)) refuse_table(path, kName, start);
  return std::make_unique<TableRecords>(path, quench_parquet, kName, options);
}

std::unique_ptr<RecordSource> open_arrow_source(const std::filesystem::path& path, const RecordSourceOptions& options) {
  constexpr std::string_view kName = "Arrow";
  const std::string start = first_bytes_of_table(path, kName);
  const bool file = start.starts_with(kArrowFileMagic);
  if (!file && !start.starts_with(kStreamMagic)) refuse_table(path, kName, start);
  return std::make_unique<TableRecords>(path, file ? quench_arrow_file : quench_arrow_stream, kName, options);
}

}  // namespace quench
