#pragma once
// LLM.Q (IST-DASLab/llmq) and Surogate (invergent-ai/surogate): "BIN.TOK\n", int32 fields from byte 8: version, bytes
// per token (4), token count, vocabulary size (version >= 2), has_masks (1 = yes); int32 tokens from byte 1024; version
// 3: one int32 position id per token; with masks: one bit per token, least significant first.
//
// Unset header bytes are '*': has_masks "****" of old version 2 files means no; a header starting with '*' is
// unfinished. As in both loaders, mask bit i applies to the target of input i, token i + 1. Version 3: position 0
// starts a document (padding positions are all 0: each is a document).

#include "data/formats/token_layout.h"

namespace quench {

// Throws corrupt or unsupported, naming the field.
[[nodiscard]] TokenLayout read_llmq_layout(const BinaryFile& file);

}  // namespace quench
