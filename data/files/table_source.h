#pragma once
// Table files: Parquet, Arrow IPC files and Arrow IPC streams.

#include "data/files/record_source.h"

namespace quench {

// Row: object of its columns, null without a value (arrow_value() for nested ones). Memory: one record batch, in Arrow
// files of the size written. Columns without a JSON form (times) are omitted with a log message. Throws unsupported
// without Apache Arrow, naming the command to convert the file, and for standard input; corrupt for damaged files or
// other formats.
[[nodiscard]] std::unique_ptr<RecordSource> open_parquet_source(const std::filesystem::path& path,
                                                                const RecordSourceOptions& options);
[[nodiscard]] std::unique_ptr<RecordSource> open_arrow_source(const std::filesystem::path& path,
                                                              const RecordSourceOptions& options);

}  // namespace quench
