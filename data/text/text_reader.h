#pragma once
// Text files, split into documents (see TextSplit). Bytes are kept as they are, line ends included, except that a byte
// order mark is left out and, at blank lines and markers, the blank lines before and the line breaks after a document.

#include "data/text/document_reader.h"

namespace quench {

// Throws unsupported for UTF-16 text, bad_config for an empty marker.
[[nodiscard]] std::unique_ptr<DocumentReader> open_text_reader(const std::filesystem::path& path,
                                                               const ReaderOptions& options);

}  // namespace quench
