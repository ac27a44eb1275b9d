#pragma once
// C ABI of the plug-in libquench_arrow.so, which reads Parquet and Arrow files with Apache Arrow; loaded at the first
// such file. Record batches cross as Arrow C data interface structures
// (https://arrow.apache.org/docs/format/CDataInterface.html).

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

// ABI version; a module of another version is rejected.
#define QUENCH_ARROW_INTERFACE 1

enum QuenchArrowFormat { quench_parquet = 0, quench_arrow_file = 1, quench_arrow_stream = 2 };

struct QuenchArrowTable;

// Error texts are written to `error` of `error_size` bytes, always null-terminated.
struct QuenchArrowFunctions {
  int interface;        // QUENCH_ARROW_INTERFACE
  const char* version;  // Apache Arrow version
  // Null with an error. On success the caller releases `schema`.
  QuenchArrowTable* (*open)(const char* path, int format, ArrowSchema* schema, char* error, std::size_t error_size);
  // 1: `batch` is the next record batch, a struct array released by the caller; `position`: bytes of the file up to its
  // end (for Parquet in proportion to the rows). 0: end. -1: error.
  int (*next)(QuenchArrowTable* table, ArrowArray* batch, std::uint64_t* position, char* error, std::size_t error_size);
  void (*close)(QuenchArrowTable* table);
};

// The only exported function.
using QuenchArrowEntry = const QuenchArrowFunctions* (*)();
#define QUENCH_ARROW_ENTRY "quench_arrow_functions"

}  // extern "C"
