#pragma once

#include "data/files/record_source.h"

namespace quench {

// Parquet, Arrow IPC files and streams. Row: object of its columns, null without a value. Memory: one record batch
// (Arrow files: as written). Columns without a JSON form (times) are omitted with a log message. Throws unsupported
// without Apache Arrow, naming the command to convert the file, and for standard input; corrupt for damaged files or
// other formats.
[[nodiscard]] std::unique_ptr<RecordSource> open_parquet_source(const std::filesystem::path& path,
                                                                const RecordSourceOptions& options);
[[nodiscard]] std::unique_ptr<RecordSource> open_arrow_source(const std::filesystem::path& path,
                                                              const RecordSourceOptions& options);

}  // namespace quench
