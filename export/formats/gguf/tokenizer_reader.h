#pragma once
// The tokenizer in a GGUF file's metadata (tokenizer.ggml.*), as the files that load_tokenizer() reads.
//
// Byte-level BPE ("gpt2") with the splits of token_kinds.h, and SentencePiece's BPE ("llama"). As in llama.cpp, which
// such files are made for, texts are not normalized.

#include "data/tokenizer/tokenizer_files.h"
#include "export/formats/gguf/head_parser.h"

namespace quench {

// Whether the metadata name a tokenizer, of whatever kind.
[[nodiscard]] bool holds_tokenizer(const GgufHead& head);

// tokenizer.json and tokenizer_config.json. `source` names the file in errors. Throws unsupported for tokenizers of
// other kinds, corrupt for metadata that do not fit each other, naming the key.
[[nodiscard]] TokenizerFiles tokenizer_files(const GgufHead& head, const std::string& source);

}  // namespace quench
