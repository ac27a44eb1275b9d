#pragma once
// Records of tables in files of their own formats: Parquet, Arrow IPC files and Arrow IPC streams.

#include "data/files/record_source.h"

namespace quench {

// A row is an object of its columns, null where it has no value (arrow_value() for what is nested). A batch of rows is
// held at a time; of Arrow files those are as large as they were written. Columns whose type has no form in JSON, such
// as times, are left out with a message. Throws unsupported where the program has no Apache Arrow, naming the command
// that converts the file, and for standard input; corrupt for a file of another format or a damaged one.
[[nodiscard]] std::unique_ptr<RecordSource> open_parquet_source(const std::filesystem::path& path,
                                                                const RecordSourceOptions& options);
[[nodiscard]] std::unique_ptr<RecordSource> open_arrow_source(const std::filesystem::path& path,
                                                              const RecordSourceOptions& options);

}  // namespace quench
