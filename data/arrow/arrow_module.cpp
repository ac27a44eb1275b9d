// Plug-in with Apache Arrow.

#include <arrow/api.h>
#include <arrow/c/bridge.h>
#include <arrow/io/file.h>
#include <arrow/ipc/reader.h>
#include <arrow/memory_pool.h>
#include <arrow/util/config.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "data/arrow/arrow_interface.h"

struct QuenchArrowTable {
  virtual ~QuenchArrowTable() = default;
  virtual std::shared_ptr<arrow::Schema> schema() const = 0;
  // Null at the end.
  virtual arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() = 0;
  virtual std::uint64_t position() const = 0;
  // True: offsets made by a decoder. Batches stored in IPC form are validated before use.
  virtual bool is_checked() const { return false; }
};

namespace {

// Decoded bytes per Parquet batch: large documents give few rows.
constexpr std::int64_t kBatchBytes = std::int64_t{4} << 20;
constexpr std::int64_t kMaxBatchRows = 4096;

// Memory for a file: stored sizes and counts of hostile files promise anything.
constexpr std::int64_t kLeastMemory = std::int64_t{256} << 20, kMemoryPerByte = 16;

struct FileMemory {
  explicit FileMemory(std::int64_t limit) : counted(arrow::system_memory_pool()), capped(&counted, limit) {}
  arrow::ProxyMemoryPool counted;
  arrow::CappedMemoryPool capped;
};

// Never freed: Arrow's input threads release buffers after the table is closed.
arrow::MemoryPool* new_file_memory(std::int64_t limit) {
  static std::mutex mutex;
  static auto& pools = *new std::deque<FileMemory>();
  const std::lock_guard lock(mutex);
  return &pools.emplace_back(limit).capped;
}

// A file and the bounded memory in which it is read.
class BoundedFile {
 public:
  static arrow::Result<std::unique_ptr<BoundedFile>> open(const std::string& path) {
    ARROW_ASSIGN_OR_RAISE(auto size_of, arrow::io::ReadableFile::Open(path));
    auto file = std::make_unique<BoundedFile>();
    ARROW_ASSIGN_OR_RAISE(file->bytes_, size_of->GetSize());
    file->pool_ = new_file_memory(kLeastMemory + kMemoryPerByte * file->bytes_);
    ARROW_ASSIGN_OR_RAISE(file->file_, arrow::io::ReadableFile::Open(path, file->pool_));
    return file;
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }
  [[nodiscard]] arrow::MemoryPool* pool() const { return pool_; }
  [[nodiscard]] const std::shared_ptr<arrow::io::ReadableFile>& file() const { return file_; }

 private:
  std::int64_t bytes_ = 0;
  arrow::MemoryPool* pool_ = nullptr;
  std::shared_ptr<arrow::io::ReadableFile> file_;
};

// One row group after another. Pages are read on demand: memory does not depend on the row group size.
class ParquetTable final : public QuenchArrowTable {
 public:
  static arrow::Result<std::unique_ptr<QuenchArrowTable>> open(std::unique_ptr<BoundedFile> file) {
    parquet::ReaderProperties reading(file->pool());
    reading.enable_buffered_stream();
    parquet::ArrowReaderProperties decoding(/*use_threads=*/false);
    decoding.set_pre_buffer(false);
    decoding.set_arrow_extensions_enabled(true);  // distinguishes JSON columns from text
    auto table = std::make_unique<ParquetTable>();
    table->file_ = std::move(file);
    parquet::arrow::FileReaderBuilder builder;
    ARROW_RETURN_NOT_OK(builder.Open(table->file_->file(), reading));
    builder.memory_pool(table->file_->pool())->properties(decoding);
    ARROW_ASSIGN_OR_RAISE(table->reader_, builder.Build());
    table->metadata_ = table->reader_->parquet_reader()->metadata();
    ARROW_RETURN_NOT_OK(table->reader_->GetSchema(&table->schema_));
    return table;
  }

  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    while (true) {
      if (!batches_) {
        if (group_ == metadata_->num_row_groups()) return nullptr;
        const auto group = metadata_->RowGroup(group_);
        const std::int64_t row_bytes = group->total_byte_size() / std::max<std::int64_t>(1, group->num_rows());
        ARROW_RETURN_NOT_OK(
            open_group(std::clamp<std::int64_t>(kBatchBytes / std::max<std::int64_t>(1, row_bytes), 1, kMaxBatchRows)));
      }
      std::shared_ptr<arrow::RecordBatch> batch;
      const arrow::Status status = batches_->ReadNext(&batch);
      // Rows larger than stored, by a dictionary or by compression.
      if (status.IsOutOfMemory() && batch_rows_ > 1) {
        ARROW_RETURN_NOT_OK(open_group(std::max<std::int64_t>(1, batch_rows_ / 16)));
        continue;
      }
      ARROW_RETURN_NOT_OK(status);
      if (!batch) {
        ++group_;
        group_rows_ = 0;
        batches_.reset();
        continue;
      }
      const std::int64_t skipped = std::min(skip_, batch->num_rows());
      skip_ -= skipped;
      if (skipped == batch->num_rows()) continue;
      batch = batch->Slice(skipped);
      group_rows_ += batch->num_rows();
      rows_ += batch->num_rows();
      return batch;
    }
  }

  [[nodiscard]] std::uint64_t position() const override {
    const std::int64_t rows = metadata_->num_rows(), bytes = file_->bytes();
    if (rows_ >= rows) return static_cast<std::uint64_t>(bytes);
    return static_cast<std::uint64_t>(static_cast<double>(bytes) * static_cast<double>(rows_) /
                                      static_cast<double>(rows));
  }
  [[nodiscard]] bool is_checked() const override { return true; }

 private:
  // After its returned rows.
  arrow::Status open_group(std::int64_t batch_rows) {
    batches_.reset();
    batch_rows_ = batch_rows;
    skip_ = group_rows_;
    reader_->set_batch_size(batch_rows);
    return reader_->GetRecordBatchReader(std::vector<int>{group_}).Value(&batches_);
  }

  std::unique_ptr<BoundedFile> file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<parquet::FileMetaData> metadata_;
  std::shared_ptr<arrow::Schema> schema_;
  std::shared_ptr<arrow::RecordBatchReader> batches_;  // reader of row group group_; or null
  int group_ = 0;
  std::int64_t batch_rows_ = 0;
  std::int64_t group_rows_ = 0, skip_ = 0;  // returned of the row group; to be read again
  std::int64_t rows_ = 0;                   // returned
};

arrow::ipc::IpcReadOptions ipc_options(arrow::MemoryPool* pool) {
  arrow::ipc::IpcReadOptions options = arrow::ipc::IpcReadOptions::Defaults();
  options.memory_pool = pool;
  options.use_threads = false;
  return options;
}

// As written.
class IpcFileTable final : public QuenchArrowTable {
 public:
  static arrow::Result<std::unique_ptr<QuenchArrowTable>> open(std::unique_ptr<BoundedFile> file) {
    auto table = std::make_unique<IpcFileTable>();
    table->file_ = std::move(file);
    ARROW_ASSIGN_OR_RAISE(table->reader_, arrow::ipc::RecordBatchFileReader::Open(table->file_->file(),
                                                                                  ipc_options(table->file_->pool())));
    return table;
  }
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    if (batch_ == reader_->num_record_batches()) return nullptr;
    return reader_->ReadRecordBatch(batch_++);
  }
  [[nodiscard]] std::uint64_t position() const override {
    const int batches = reader_->num_record_batches();
    if (batch_ == batches) return static_cast<std::uint64_t>(file_->bytes());
    return static_cast<std::uint64_t>(static_cast<double>(file_->bytes()) * batch_ / batches);
  }

 private:
  std::unique_ptr<BoundedFile> file_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader_;
  int batch_ = 0;
};

// As written by the library `datasets`.
class IpcStreamTable final : public QuenchArrowTable {
 public:
  static arrow::Result<std::unique_ptr<QuenchArrowTable>> open(std::unique_ptr<BoundedFile> file) {
    auto table = std::make_unique<IpcStreamTable>();
    table->file_ = std::move(file);
    ARROW_ASSIGN_OR_RAISE(table->reader_, arrow::ipc::RecordBatchStreamReader::Open(table->file_->file(),
                                                                                    ipc_options(table->file_->pool())));
    return table;
  }
  [[nodiscard]] std::shared_ptr<arrow::Schema> schema() const override { return reader_->schema(); }
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() override {
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(reader_->ReadNext(&batch));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t position, file_->file()->Tell());
    position_ = static_cast<std::uint64_t>(position);
    return batch;
  }
  [[nodiscard]] std::uint64_t position() const override { return position_; }

 private:
  std::unique_ptr<BoundedFile> file_;
  std::shared_ptr<arrow::ipc::RecordBatchStreamReader> reader_;
  std::uint64_t position_ = 0;
};

void put_error(const std::string& text, char* error, std::size_t size) {
  std::snprintf(error, size, "%s", text.c_str());
}

void put_error(const arrow::Status& status, char* error, std::size_t size) {
  if (!status.IsOutOfMemory()) return put_error(status.message(), error, size);
  put_error("it needs more memory than the limit of " + std::to_string(kLeastMemory >> 20) + " MiB and " +
                std::to_string(kMemoryPerByte) +
                " times the bytes of the file; if it is sound, write it without compression, or in smaller batches",
            error, size);
}

arrow::Result<std::unique_ptr<QuenchArrowTable>> open_format(const std::string& path, int format) {
  ARROW_ASSIGN_OR_RAISE(auto file, BoundedFile::open(path));
  if (format == quench_parquet) return ParquetTable::open(std::move(file));
  if (format == quench_arrow_file) return IpcFileTable::open(std::move(file));
  return IpcStreamTable::open(std::move(file));
}

QuenchArrowTable* open_table(const char* path, int format, ArrowSchema* schema, char* error, std::size_t error_size) {
  try {
    auto table = open_format(path, format);
    const arrow::Status status = table.ok() ? arrow::ExportSchema(*(*table)->schema(), schema) : table.status();
    if (status.ok()) return table->release();
    put_error(status, error, error_size);
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
    put_error(status, error, error_size);
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
