#pragma once
// Documents from records: each record is of one kind (data/text/record_kind.h) and makes one document.

#include "data/files/record_source.h"
#include "data/text/document_reader.h"

namespace quench {

// Reads as far as the first usable record when the kind is automatic. `name` is that of the file in errors. Throws
// corrupt when there is none.
[[nodiscard]] std::unique_ptr<DocumentReader> open_record_reader(std::unique_ptr<RecordSource> source,
                                                                 const std::string& name, const ReaderOptions& options);

}  // namespace quench
