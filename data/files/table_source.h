#pragma once
// Records of Parquet and Arrow files.

#include "data/files/record_source.h"

namespace quench {

// Parquet, Arrow IPC files and streams. Row: object of its columns, null without a value. Memory: one record batch
// (Arrow files: as written), at most 256 MiB and 16 times the file's size. Columns that cannot be converted
// (arrow_values.h) are omitted with a log message. Throws unsupported without Apache Arrow, naming the command to
// convert the file, and for standard input; corrupt for damaged files, files above the memory limit, two columns of one
// name, or other formats.
[[nodiscard]] std::unique_ptr<RecordSource> open_parquet_source(const std::filesystem::path& path,
                                                                const RecordSourceOptions& options);
[[nodiscard]] std::unique_ptr<RecordSource> open_arrow_source(const std::filesystem::path& path,
                                                              const RecordSourceOptions& options);

}  // namespace quench
