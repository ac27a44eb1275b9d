#pragma once
// JSON records: one per line (JSON Lines), one array, or concatenated multi-line values. Detected from the beginning of
// the file.

#include "data/files/record_source.h"

namespace quench {

// Blank lines are skipped. Throws the errors of TextInput; reading throws corrupt "file:line: reason" for an unclosed
// array, or text between or after its records.
[[nodiscard]] std::unique_ptr<RecordSource> open_json_source(const std::filesystem::path& path,
                                                             const RecordSourceOptions& options);

}  // namespace quench
