#pragma once
// Documents from records: one kind per file (data/text/record_kind.h), one document per record.

#include "data/files/record_source.h"
#include "data/text/document_reader.h"

namespace quench {

// Reads up to the first valid record if the kind is automatic. `name`: file in errors. Throws corrupt if there is none.
[[nodiscard]] std::unique_ptr<DocumentReader> open_record_reader(std::unique_ptr<RecordSource> source,
                                                                 const std::string& name, const ReaderOptions& options);

}  // namespace quench
