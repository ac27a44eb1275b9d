#pragma once
// Tokenizer of GGUF metadata, as files for load_tokenizer(): byte-level BPE ("gpt2") with the pre-tokenizers of
// token_kinds.h, SentencePiece BPE ("llama"). No text normalization, as in llama.cpp.

#include "data/tokenizer/tokenizer_files.h"
#include "export/formats/gguf/head_parser.h"

namespace quench {

[[nodiscard]] bool holds_tokenizer(const GgufHead& head);

// tokenizer.json, tokenizer_config.json. `source`: for errors. Throws unsupported for other types, corrupt for
// inconsistent metadata, naming the key.
[[nodiscard]] TokenizerFiles tokenizer_files(const GgufHead& head, const std::string& source);

}  // namespace quench
