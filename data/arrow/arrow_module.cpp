// Plug-in with Apache Arrow.

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/util/config.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "data/arrow/arrow_interface.h"

struct QuenchArrowTable {
  virtual ~QuenchArrowTable() = default;
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  // Null at the end.
  virtual arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() = 0;
  virtual std::uint64_t position() const = 0;
  // True: trusted offsets. Batches stored in IPC form are validated before use.
  virtual bool is_checked() const { return false; }
};

namespace {

// Decoded bytes per Parquet batch: large documents give few rows.
constexpr std::int64_t kBatchBytes = std::int64_t{4} << 20;
constexpr std::int64_t kMaxBatchRows = 4096;

// One row group after another. Pages are read on demand: memory does not depend on the row group size.
class ParquetTable final : public QuenchArrowTable {
 public:
  static arrow::Result<std::unique_ptr<QuenchArrowTable>> open(const std::string& path) {
    parquet::ReaderProperties reading(arrow::system_memory_pool());
    reading.enable_buffered_stream();
    parquet::ArrowReaderProperties decoding(/*use_threads=*/false);
    decoding.set_pre_buffer(false);
    decoding.set_arrow_extensions_enabled(true);  // distinguishes JSON columns from text
    auto table = std::make_unique<ParquetTable>();
    ARROW_ASSIGN_OR_RAISE(table->file_, arrow::io::ReadableFile::Open(path, arrow::system_memory_pool()));
    ARROW_ASSIGN_OR_RAISE(table->bytes_, table->file_->GetSize());
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(table->file_, reading));
    builder.memory_pool(arrow::system_memory_pool())->properties(decoding);
    ARROW_ASSIGN_OR_RAISE(table->reader_, builder.Build());
    table->metadata_ = table->reader_->parquet_reader()->metadata();
    ARROW_RETURN_NOT_OK(table->reader_->GetSchema(&table->schema_));
    return table;
  }

  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    while (true) {
      if (batches_) {
        std::shared_ptr<arrow::RecordBatch> batch;
        ARROW_RETURN_NOT_OK(batches_->ReadNext(&batch));
        if (batch) {
          rows_ += batch->num_rows();
          return batch;
        }
        batches_.reset();
      }
      if (group_ == metadata_->num_row_groups()) return nullptr;
      const auto group = metadata_->RowGroup(group_);
      const std::int64_t row_bytes = group->total_byte_size() / std::max<std::int64_t>(1, group->num_rows());
      reader_->set_batch_size(
          std::clamp<std::int64_t>(kBatchBytes / std::max<std::int64_t>(1, row_bytes), 1, kMaxBatchRows));
      ARROW_ASSIGN_OR_RAISE(batches_, reader_->GetRecordBatchReader(std::vector<int>{group_++}));
    }
  }

  [[nodiscard]] std::uint64_t position() const override {
    const std::int64_t rows = metadata_->num_rows();
    if (rows_ >= rows) return static_cast<std::uint64_t>(bytes_);
    return static_cast<std::uint64_t>(static_cast<double>(bytes_) * static_cast<double>(rows_) /
                                      static_cast<double>(rows));
  }
  [[nodiscard]] bool is_checked() const override { return true; }  // from the decoder

 private:
  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;  // of row group group_ - 1; or null
  int group_ = 0;
  std::int64_t rows_ = 0;  // read
  std::int64_t bytes_ = 0;
};

arrow::ipc::IpcReadOptions ipc_options() {
  arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = arrow::system_memory_pool();
  options.use_threads = false;
  return options;
}

// As written.
class IpcFileTable final : public QuenchArrowTable {
 public:
  static arrow::Result<std::unique_ptr<QuenchArrowTable>> open(const std::string& path) {
    auto table = std::make_unique<IpcFileTable>();
    ARROW_ASSIGN_OR_RAISE(table->file_, arrow::io::ReadableFile::Open(path, arrow::system_memory_pool()));
    ARROW_ASSIGN_OR_RAISE(table->bytes_, table->file_->GetSize());
    ARROW_ASSIGN_OR_RAISE(table->reader_, arrow::ipc::RecordBatchFileReader::Open(table->file_, ipc_options()));
    return table;
  }
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    if (batch_ == reader_->num_record_batches()) return nullptr;
    return reader_->ReadRecordBatch(batch_++);
  }
  [[nodiscard]] std::uint64_t position() const override {
    const int batches = reader_->num_record_batches();
    if (batch_ == batches) return static_cast<std::uint64_t>(bytes_);
    return static_cast<std::uint64_t>(static_cast<double>(bytes_) * batch_ / batches);
  }

 private:
  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int batch_ = 0;
  std::int64_t bytes_ = 0;
};

// As written by the library `datasets`.
class IpcStreamTable final : public QuenchArrowTable {
 public:
  static arrow::Result<std::unique_ptr<QuenchArrowTable>> open(const std::string& path) {
    auto table = std::make_unique<IpcStreamTable>();
    ARROW_ASSIGN_OR_RAISE(table->file_, arrow::io::ReadableFile::Open(path, arrow::system_memory_pool()));
    ARROW_ASSIGN_OR_RAISE(table->reader_, arrow::ipc::RecordBatchStreamReader::Open(table->file_, ipc_options()));
    return table;
  }
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(reader_->ReadNext(&batch));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t position, file_->Tell());
    position_ = static_cast<std::uint64_t>(position);
    return batch;
  }
  [[nodiscard]] std::uint64_t position() const override { return position_; }

 private:
  std::shared_ptr<arrow::io::ReadableFile> file_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
  std::uint64_t position_ = 0;
};

void put_error(const std::string& text, char* error, std::size_t size) {
  std::snprintf(error, size, "%s", text.c_str());
}

arrow::Result<std::unique_ptr<QuenchArrowTable>> open_format(const std::string& path, int format) {
  if (format == quench_parquet) return ParquetTable::open(path);
  if (format == quench_arrow_file) return IpcFileTable::open(path);
  return IpcStreamTable::open(path);
}

QuenchArrowTable* open_table(const char* path, int format, ArrowSchema* schema, char* error, std::size_t error_size) {
  try {
    auto table = open_format(path, format);
    const arrow::Status status = table.ok() ? arrow::ExportSchema(*(*table)->schema(), schema) : table.status();
    if (status.ok()) return table->release();
    put_error(status.message(), error, error_size);
  } catch (const std::exception& exception) {
    put_error(exception.what(), error, error_size);
  }
  return nullptr;
}

int next_batch(QuenchArrowTable* table, ArrowArray* batch, std::uint64_t* position, char* error,
               std::size_t error_size) {
  try {
    auto read = table->next();
    arrow::Status status = read.status();
    if (status.ok() && *read == nullptr) return 0;
    if (status.ok() && !table->is_checked()) status = (*read)->ValidateFull();
    if (status.ok()) status = arrow::ExportRecordBatch(**read, batch);
    if (status.ok()) {
      *position = table->position();
      return 1;
    }
    put_error(status.message(), error, error_size);
  } catch (const std::exception& exception) {
    put_error(exception.what(), error, error_size);
  }
  return -1;
}

void close_table(QuenchArrowTable* table) {
  delete table;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const QuenchArrowFunctions* quench_arrow_functions() {
  static const QuenchArrowFunctions functions = {QUENCH_ARROW_INTERFACE, ARROW_VERSION_STRING, open_table, next_batch,
                                                 close_table};
  return &functions;
}
