#pragma once
// Tokenizer of GGUF metadata (tokenizer.ggml.*), as files for load_tokenizer().
//
// Byte-level BPE ("gpt2") with the pre-tokenizers of token_kinds.h, and SentencePiece BPE ("llama"). No text
// normalization, as in llama.cpp.

#include "data/tokenizer/tokenizer_files.h"
#include "export/formats/gguf/head_parser.h"

namespace quench {

// True if the metadata name any tokenizer.
[[nodiscard]] bool holds_tokenizer(const GgufHead& head);

// tokenizer.json and tokenizer_config.json. `source` names the file in errors. Throws unsupported for other tokenizer
// types, corrupt for inconsistent metadata, naming the key.
[[nodiscard]] TokenizerFiles tokenizer_files(const GgufHead& head, const std::string& source);

}  // namespace quench
