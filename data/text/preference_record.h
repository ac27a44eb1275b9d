#pragma once
// Records of preference training, as TRL reads them.
//
// Pairs: {"prompt", "chosen", "rejected"}, each a text or a list of messages. Without "prompt", or with a text for one
// next to messages, the prompt is the common beginning of both answers: whole messages, or characters without a final
// space. Labels: {"prompt", "completion", "label"}, label true or 1: desirable; a pair counts as two labels.

#include <vector>

#include "core/json/json.h"
#include "data/text/document_reader.h"

namespace quench {

// Documents whose targets are the answer. Pairs: chosen, marked 1, then rejected, marked 0. Labels: the mark is the
// label. None for a record left out by its flag. Throws Error(corrupt) for equal or empty answers and for a record of
// another kind.
[[nodiscard]] std::vector<Document> preference_documents(const Json& record, const ReaderOptions& options);

}  // namespace quench
