#pragma once
// Records of CSV and TSV files.

#include "data/files/record_source.h"

namespace quench {

// CSV and TSV with a header line (RFC 4180): objects of strings. Quoted cells may contain separators, line breaks and
// doubled quotes. A .csv file without a comma in the header may use semicolons or tabs. Throws unsupported for UTF-16;
// corrupt for no or duplicate columns; on reading, for an unclosed quote.
[[nodiscard]] std::unique_ptr<RecordSource> open_csv_source(const std::filesystem::path& path,
                                                            const RecordSourceOptions& options);
[[nodiscard]] std::unique_ptr<RecordSource> open_tsv_source(const std::filesystem::path& path,
                                                            const RecordSourceOptions& options);

}  // namespace quench
