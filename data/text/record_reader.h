#pragma once
// One kind per file, one document per record; records of answers: two (record_kind.h).

#include "data/files/record_source.h"
#include "data/text/document_reader.h"

namespace quench {

// Automatic kind: by the first valid record; throws corrupt if there are only others, and next() if there is none at
// all. `name`: for errors.
[[nodiscard]] std::unique_ptr<DocumentReader> open_record_reader(std::unique_ptr<RecordSource> source,
                                                                 const std::string& name, const ReaderOptions& options);

}  // namespace quench
