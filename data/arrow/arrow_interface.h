#pragma once
// C ABI of the plug-in libquench_arrow.so (Parquet and Arrow files by Apache Arrow). Record batches are Arrow C data
// interface structures (https://arrow.apache.org/docs/format/CDataInterface.html).

#include <cstddef>
#include <cstdint>

extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  std::int64_t flags;
  std::int64_t n_children;
  ArrowSchema** children;
  ArrowSchema* dictionary;
  void (*release)(ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  std::int64_t length;
  std::int64_t null_count;
  std::int64_t offset;
  std::int64_t n_buffers;
  std::int64_t n_children;
  const void** buffers;
  ArrowArray** children;
  ArrowArray* dictionary;
  void (*release)(ArrowArray*);
  void* private_data;
};

#endif

// Modules of another ABI version are rejected.
#define QUENCH_ARROW_INTERFACE 1

enum QuenchArrowFormat { quench_parquet = 0, quench_arrow_file = 1, quench_arrow_stream = 2 };

struct QuenchArrowTable;

// Errors: in `error` of `error_size` bytes, null-terminated.
struct QuenchArrowFunctions {
  int interface;
  const char* version;  // release of Apache Arrow
  // Null on an error. The caller releases `schema`.
  QuenchArrowTable* (*open)(const char* path, int format, ArrowSchema* schema, char* error, std::size_t error_size);
  // 1: `batch` is the next record batch, a struct array that the caller releases; `position`: bytes of the file up to
  // its end (Parquet: in proportion to the rows). 0: end. -1: error.
  int (*next)(QuenchArrowTable* table, ArrowArray* batch, std::uint64_t* position, char* error, std::size_t error_size);
  void (*close)(QuenchArrowTable* table);
};

using QuenchArrowEntry = const QuenchArrowFunctions* (*)();
#define QUENCH_ARROW_ENTRY "quench_arrow_functions"

}  // extern "C"
