#pragma once
// JSON records: per line, in one array, or concatenated; detected from the beginning.

#include "data/files/record_source.h"

namespace quench {

// Blank lines are skipped. Throws the errors of TextInput; reading throws corrupt "file:line: reason" for an unclosed
// array, or text between or after its records.
[[nodiscard]] std::unique_ptr<RecordSource> open_json_source(const std::filesystem::path& path,
                                                             const RecordSourceOptions& options);

}  // namespace quench
