#pragma once
// LLM.Q (IST-DASLab/llmq) and Surogate (invergent-ai/surogate) token files, as their data loaders read them: 8 bytes
// "BIN.TOK\n", then int32 fields from byte 8: version, bytes per token (4), token count, vocabulary size (version >=
// 2), has_masks (1 = yes); tokens (int32) from byte 1024; version 3 then has one int32 position id a token; then, with
// masks, one bit a token, least significant first.
//
// Bytes of the header that a writer does not set stay '*' (the reserved header is filled with them), so has_masks of
// old version 2 files reads "****" and means no. A header that starts with '*' belongs to an unfinished file. Both
// loaders apply mask bit i to the target of input position i, that is to token i + 1; so does this reader. Version 3:
// position 0 starts a document (padding positions are all 0: each is a document of its own).

#include "data/formats/token_layout.h"

namespace quench {

// Throws corrupt or unsupported, naming the field.
[[nodiscard]] TokenLayout read_llmq_layout(const BinaryFile& file);

}  // namespace quench
