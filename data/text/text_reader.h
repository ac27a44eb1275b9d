#pragma once
// Text files split by TextSplit. Bytes and line ends are unchanged, except a byte order mark and, at blank lines and
// markers, blank lines before and line breaks after a document.

#include "data/text/document_reader.h"

namespace quench {

// Throws unsupported for UTF-16, bad_config for an empty marker.
[[nodiscard]] std::unique_ptr<DocumentReader> open_text_reader(const std::filesystem::path& path,
                                                               const ReaderOptions& options);

}  // namespace quench
