#pragma once
// Token types and pre-tokenizer names of GGUF metadata.

#include <cstdint>
#include <string_view>
#include <vector>

namespace quench {

// tokenizer.ggml.token_type
enum TokenKind : std::int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// For a space in tokens of SentencePiece.
inline constexpr std::string_view kPieceSpace = "\u2581";
[[nodiscard]] bool is_piece_of_spaces(std::string_view text);

struct GgufPreTokenizer {
  std::vector<std::string_view> patterns;  // data/tokenizer/text/published_patterns.h, in order
  std::vector<std::string_view> names;     // tokenizer.ggml.pre; the first is written
  bool ignores_merges = false;             // pieces in the vocabulary bypass merges
  bool begins = false;                     // default add_bos_token
};

// Supported by llama.cpp and Quench.
[[nodiscard]] const std::vector<GgufPreTokenizer>& gguf_pre_tokenizers();

}  // namespace quench
