#pragma once
// Tables in text: comma- or tab-separated values with the names of the columns in the first line (RFC 4180).

#include "data/files/record_source.h"

namespace quench {

// Records are objects of strings. Cells in quotes may hold separators, line breaks and doubled quotes. A .csv file
// whose first line has no comma may be separated by semicolons or tabs. Throws unsupported for UTF-16 text, corrupt for
// a file without columns or with two of one name, and while it is read for a quote that is not closed.
[[nodiscard]] std::unique_ptr<RecordSource> open_csv_source(const std::filesystem::path& path,
                                                            const RecordSourceOptions& options);
// The same, separated by tabs.
[[nodiscard]] std::unique_ptr<RecordSource> open_tsv_source(const std::filesystem::path& path,
                                                            const RecordSourceOptions& options);

}  // namespace quench
