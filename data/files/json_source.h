#pragma once
// Records in JSON: one a line, one array of them, or one after the other, each over several lines. The beginning of the
// file tells which.

#include "data/files/record_source.h"

namespace quench {

// Blank lines are passed over. Throws what TextInput throws; reading throws corrupt "file:line: reason" for an array
// that is not closed, or that has something between or after its records.
[[nodiscard]] std::unique_ptr<RecordSource> open_json_source(const std::filesystem::path& path,
                                                             const RecordSourceOptions& options);

}  // namespace quench
