#pragma once
// The functions of the module libquench_arrow.so, which reads Parquet and Arrow files with Apache Arrow. The program
// opens it when it meets the first such file. Only C types cross: record batches as the structures of the Arrow C data
// interface (https://arrow.apache.org/docs/format/CDataInterface.html), whose layout that specification fixes.

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

// Of the functions below; a module of another version is refused.
#define QUENCH_ARROW_INTERFACE 1

enum QuenchArrowFormat { quench_parquet = 0, quench_arrow_file = 1, quench_arrow_stream = 2 };

struct QuenchArrowTable;

// Texts of errors go to `error`, which holds `error_size` bytes and is always terminated.
struct QuenchArrowFunctions {
  int interface;        // QUENCH_ARROW_INTERFACE
  const char* version;  // of Apache Arrow
  // Null with an error. On success `schema` is to be released by the caller.
  QuenchArrowTable* (*open)(const char* path, int format, ArrowSchema* schema, char* error, std::size_t error_size);
  // 1: `batch` holds the next record batch, a struct array that is to be released by the caller, and `position` the
  // bytes of the file up to its end; for Parquet in proportion to the rows. 0: the end. -1: an error.
  int (*next)(QuenchArrowTable* table, ArrowArray* batch, std::uint64_t* position, char* error, std::size_t error_size);
  void (*close)(QuenchArrowTable* table);
};

// The module's one exported function.
using QuenchArrowEntry = const QuenchArrowFunctions* (*)();
#define QUENCH_ARROW_ENTRY "quench_arrow_functions"

}  // extern "C"
