#pragma once
// JSON-lines files: one record a line (data/text/record_kind.h). Blank lines are passed over.

#include "data/text/document_reader.h"

namespace quench {

// Reads as far as the first usable record when the kind is automatic. Throws corrupt when there is none.
[[nodiscard]] std::unique_ptr<DocumentReader> open_jsonl_reader(const std::filesystem::path& path,
                                                                const ReaderOptions& options);

}  // namespace quench
